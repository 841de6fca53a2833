"""The node's part of the operator's offer, ``<state>/offer.json``: written by `init`, read by mooring-cni at ADD.

    {"v":1,"pfs":{"0000:04:00.0":{"default_share_mbps":500,"repair_node_guid":false,
     "rebind_after_privileged":true}}}

It holds what the operator decides about the VFs of a PF and no pod can request, by the PF's PCI address. `init`
replaces it whole at each run. The state folder is root's, so that no annotation reaches it. A field that a reader does
not know is ignored: `init` and mooring-cni may be of different versions while a node is upgraded.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from mooring import names
from mooring.errors import RecordError
from mooring.parsing import Value, dump, parse
from mooring.settings import rate

NAME = "offer.json"


@dataclass(frozen=True, slots=True)
class PfOffer:
    """What the offer says about the VFs of one PF.

    ``default_share_mbps`` is the min_tx_rate, in Mb/s, of a VF whose pod requests none; 0 leaves such VFs without one.
    ``repair_node_guid``: a VF without a node GUID may get an admin MAC, and its driver rebound.
    ``rebind_after_privileged``: after a pod whose containers could change a VF its driver is rebound in any case.
    """

    default_share_mbps: int = 0
    repair_node_guid: bool = True
    rebind_after_privileged: bool = False


def read_node_offer(text: str) -> Mapping[str, PfOffer]:
    """Read the file's text; return the PFs by PCI address. Raise RecordError."""
    document = parse(text, NAME, RecordError).version(1).fields()
    return {names.address(pf.instead(pci)): _pf(pf) for pci, pf in document.required("pfs").fields().items()}


def dump_node_offer(pfs: Mapping[str, PfOffer]) -> str:
    return dump({"v": 1, "pfs": {pci: _fields(pf) for pci, pf in pfs.items()}})


def _pf(value: Value) -> PfOffer:
    document = value.fields()
    return PfOffer(
        default_share_mbps=document.optional("default_share_mbps", rate) or 0,
        repair_node_guid=document.optional("repair_node_guid", Value.boolean) is not False,
        rebind_after_privileged=document.optional("rebind_after_privileged", Value.boolean) or False,
    )


def _fields(pf: PfOffer) -> dict[str, object]:
    fields: dict[str, object] = {"default_share_mbps": pf.default_share_mbps} if pf.default_share_mbps else {}
    fields |= {} if pf.repair_node_guid else {"repair_node_guid": False}
    return fields | ({"rebind_after_privileged": True} if pf.rebind_after_privileged else {})
