"""The node's part of the operator's offer, ``<state>/offer.json``: written by `init`, and read by mooring-cni at ADD.

    {"v":1,"pfs":{"0000:04:00.0":{"network":"rail0","set_aside":"0-3","keep_percent":10,"allow":{"vlan":"100-199"},
      "default_share_mbps":500,"repair_node_guid":false,"rebind_after_privileged":true},"0000:04:00.1":{"network":"rail1","vlan":200,
      "namespaces":["team-a","ml-*"]}}}

For each PF on offer, by PCI address, the file has the operator's decisions about its VFs, which pods cannot request,
and the limits of an assignment. `init` replaces the whole file. Only root can write the state folder, so no annotation
can change the file. A PF that is not in the file is not on offer. Without the file the default is that of a node
without an offer: any VF on any network, and no setting that affects more than its pod.

Readers ignore unknown fields and use the defaults below for missing ones, because `init` and mooring-cni can be of
different versions while a node is upgraded.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from mooring import names
from mooring.annotations import pf_terms
from mooring.annotations.assignment import AssignedVf
from mooring.annotations.pf_terms import Access, Allow
from mooring.errors import RecordError
from mooring.indexes import Indexes
from mooring.nic.settings import rate
from mooring.parsing import Value, dump, parse

NAME = "offer.json"
# The folder beside the file with an empty file for each VF that is set aside for the host, by PCI address.
SET_ASIDE_FOLDER = "set-aside"


@dataclass(frozen=True, slots=True)
class PfOffer:
    """The offer's terms for the VFs of one PF.

    ``default_share_mbps`` is the min_tx_rate, in Mb/s, of VFs whose pod requests none; 0 sets none.
    ``repair_node_guid``: a VF without a node GUID gets an admin MAC, and its driver is rebound.
    ``rebind_after_privileged``: a VF's driver is rebound after a pod whose containers could change the VF.
    ``namespaces`` are those whose pods may have the VFs, as in `mooring.annotations.pf_terms.Access`; empty means all.
    ``network`` None is any network. ``set_aside`` are the VFs that the host keeps, ``keep_percent`` is the part of the
    line rate that it keeps. ``vlan`` is the VLAN id that every VF gets, whatever its pod requests.
    """

    default_share_mbps: int = 0
    repair_node_guid: bool = True
    network: str | None = None
    set_aside: Indexes = field(default_factory=Indexes)
    keep_percent: int = 0
    allow: Allow = field(default_factory=Allow)
    vlan: int | None = None
    rebind_after_privileged: bool = False
    namespaces: tuple[str, ...] = ()

    def refusal(self, vf: AssignedVf, pod_namespaces: Collection[str]) -> str:
        """Return why the offer forbids this assignment of a VF, empty if it does not; does not check sums of rates.

        ``pod_namespaces`` is the pod's namespace, by each source that names it; every one must be admitted.
        """
        access = Access(self.namespaces)
        for namespace in pod_namespaces or ("",):
            if reason := access.refusal(namespace, vf.network or ""):
                return f"{reason}, not for {namespace!r}" if namespace else f"{reason}, and the pod's is unknown"
        if self.network not in (None, vf.network):
            return f"the PF is on offer on network {self.network!r}, not on {vf.network!r}"
        if vf.vf in self.set_aside:
            return f"VFs {self.set_aside} are set aside for the host"
        return self.allow.refusal(vf.settings, self.vlan)

    def offered_mbps(self, line_mbps: int) -> int:
        """Return the part of a line rate that pods can reserve, both in Mb/s."""
        return line_mbps * (100 - self.keep_percent) // 100


def read_node_offer(text: str) -> Mapping[str, PfOffer]:
    """Read the file's text; return the PFs by PCI address. Raise RecordError."""
    document = parse(text, NAME, RecordError).version(1).fields()
    return {names.address(pf.with_raw(pci)): _pf(pf) for pci, pf in document.required("pfs").fields().items()}


def dump_node_offer(pfs: Mapping[str, PfOffer]) -> str:
    return dump({"v": 1, "pfs": {pci: _fields(pf) for pci, pf in pfs.items()}})


def _pf(value: Value) -> PfOffer:
    document = value.fields()
    return PfOffer(
        default_share_mbps=document.optional("default_share_mbps", rate) or 0,
        repair_node_guid=document.optional("repair_node_guid", Value.boolean) is not False,
        rebind_after_privileged=document.optional("rebind_after_privileged", Value.boolean) or False,
        network=document.optional("network", names.network),
        set_aside=document.optional("set_aside", pf_terms.indexes) or Indexes(),
        keep_percent=document.optional("keep_percent", percent) or 0,
        allow=document.optional("allow", pf_terms.allow) or Allow(),
        vlan=document.optional("vlan", pf_terms.forced_vlan),
        namespaces=document.optional("namespaces", pf_terms.namespaces) or (),
    )


def percent(value: Value) -> int:
    return value.integer(0, 100)


def _fields(pf: PfOffer) -> dict[str, object]:
    fields = {
        "default_share_mbps": pf.default_share_mbps or None,
        "repair_node_guid": None if pf.repair_node_guid else False,
        "rebind_after_privileged": pf.rebind_after_privileged or None,
        "network": pf.network,
        "set_aside": str(pf.set_aside) or None,
        "keep_percent": pf.keep_percent or None,
        "allow": pf_terms.dump_allow(pf.allow) or None,
        "vlan": pf.vlan,
        "namespaces": list(pf.namespaces) or None,
    }
    return {name: value for name, value in fields.items() if value is not None}
