"""Decide what an ADD does: which VFs it attaches, with which names, settings and rates."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from cni.spec.conf import Conf
from cni.spec.skel import BAD_CONFIG, NIC_REFUSED, REFUSED, Call, CniError
from mooring import names
from mooring.annotations.assignment import AssignedVf, verified_assignment
from mooring.errors import AnnotationError
from mooring.nic.refusals import symbol
from mooring.nic.settings import SETTING_NAMES, VfSettings
from mooring.records.ledger import LedgerEntry
from mooring.records.pod_record import PodRecord

# The name that Multus gives to an attachment that the user did not name.
_OF_MULTUS = re.compile(r"net[0-9]+", re.ASCII)


def record_to_apply(call: Call, conf: Conf, record: PodRecord | None) -> PodRecord | None:
    """Return the pod record to apply, None for a pod without a request; raise CniError 100 if the two disagree.

    A request or an assignment without a record means that the kubelet bypassed the CRI shim: the pod must not start.
    """
    if record is None and not conf.asks_for_vfs:
        return None
    pod = f"{call.args.get('K8S_POD_NAMESPACE', '')}/{call.args.get('K8S_POD_NAME', '')}"
    if record is None:
        raise CniError(REFUSED, f"pod {pod!r} requests VFs, but the CRI shim has no record of them: was it bypassed?")
    if conf.node is not None and record.assignment.node != conf.node:
        raise CniError(
            REFUSED, f"pod {pod!r} has VFs on node {record.assignment.node!r}, but this is node {conf.node!r}"
        )
    _check_same_assignment(conf.annotations, record, pod)
    return record


def _check_same_assignment(annotations: Mapping[str, str], record: PodRecord, pod: str) -> None:
    if names.ASSIGNMENT not in annotations:
        return
    try:
        said = verified_assignment(annotations, record.assignment.uid, record.assignment.node)
    except AnnotationError as unreadable:
        raise CniError(REFUSED, f"pod {pod!r}", str(unreadable)) from unreadable
    if said != record.assignment:
        raise CniError(
            REFUSED, f"the assignment of pod {pod!r} differs from the one recorded when its sandbox was created"
        )


def namespaces_of(call: Call, record: PodRecord) -> frozenset[str]:
    """Return the pod's namespace: as the CRI shim recorded it, and as the runtime names it, if it does."""
    return frozenset({record.pod.partition("/")[0], call.args.get("K8S_POD_NAMESPACE") or record.pod.partition("/")[0]})


def vfs_of_call(record: PodRecord, conf: Conf) -> tuple[AssignedVf, ...]:
    """Return the VFs of this call: those of the configuration's network (Multus), or all if it names none."""
    vfs = record.assignment.vfs
    return vfs if conf.network is None else tuple(vf for vf in vfs if vf.network == conf.network)


def interface_names(
    vfs: Sequence[AssignedVf],
    ifname: str,
    *,
    previous: Mapping[str, Any] | None,
    in_pod: Collection[str] = (),
) -> tuple[str, ...]:
    """Return the names of the interfaces.

    A name is the user's, or the next free one of net1, net2, …. As the main plugin (``previous`` is None) CNI_IFNAME is
    the first. Names in the chain's result so far, and names of interfaces in the pod, are not free: Multus passes only
    the cluster network's interface on, and has named its others net1, net2, …. VFs that are requested without a netdev
    are named last: their names are only in the ledger, and must not leave gaps between the names in the pod.
    """
    chained = previous is not None
    if not chained and not names.is_interface(ifname):
        raise CniError(BAD_CONFIG, f"CNI_IFNAME {ifname[:80]!r} is not an interface name")
    there = {interface.get("name") for interface in (previous or {}).get("interfaces") or ()}
    taken = there | set(in_pod) | {vf.name for vf in vfs if vf.name is not None}
    free = [f"net{number}" for number in range(1, len(vfs) + len(taken) + 2)]
    # Multus calls its delegates with CNI_IFNAME net1, net2, ….
    wanted = free if chained else [ifname, *(name for name in free if name != ifname)]
    unused = (name for name in wanted if name not in taken)
    ordered = sorted(range(len(vfs)), key=lambda index: vfs[index].netdev is False)
    given = {index: vfs[index].name or next(unused) for index in ordered}
    return tuple(given[index] for index in range(len(vfs)))


def check_names(record: PodRecord, vfs: Sequence[AssignedVf], conf: Conf, ifname: str) -> None:
    """Raise CniError 100 if a VF would get a name that Multus gives to the delegate of another network.

    Multus names its delegates net1, net2, …, and the second unnamed VF of one delegate would get such a name.
    """
    unnamed = [vf for vf in vfs if vf.name is None and vf.netdev is not False]
    others = {vf.network for vf in record.assignment.vfs} - {conf.network}
    if conf.network is not None and others and len(unnamed) > 1 and _OF_MULTUS.fullmatch(ifname):
        raise CniError(
            REFUSED,
            f"pod {record.pod!r} has {len(unnamed)} unnamed VFs of network {conf.network!r} and VFs of "
            f"{', '.join(sorted(others))}: Multus names its delegates net1, net2, …, so the request must name all "
            "but one",
        )


# The settings that one netlink attribute carries, in the kernel's order (do_setvfinfo in net/core/rtnetlink.c).
ATTRIBUTES: tuple[tuple[str, ...], ...] = (
    *(("mac",), ("vlan", "qos"), ("min_tx_rate", "max_tx_rate"), ("spoofchk",), ("link_state",), ("trust",)),
    ("guid",),
)
NO_MAC = "00:00:00:00:00:00"


def effective(
    wished: VfSettings, found: VfSettings, netdev_mac: str | None = None, link: names.LinkType = "ethernet"
) -> VfSettings:
    """Return the settings to set: those of the pod's request, and rate 0 for a rate that it does not request.

    A request for 0 or false is dropped if the NIC does not support the setting. Spoof check limits a VF to its admin
    MAC. If the pod requests the check, a netdev with another MAC gets the admin MAC. A VF without an admin MAC gets
    that of its netdev, even if the check was already on and the pod does not request it. An InfiniBand VF starts with
    the policy Down, read as "disable" (mlx_to_net_policy in the kernel's drivers/infiniband/hw/mlx5/ib_virt.c). Its
    port would never become active, so it gets "auto".
    """
    if link == "infiniband" and wished.link_state is None and found.link_state == "disable":
        wished = replace(wished, link_state="auto")
    checked = wished.spoofchk or (wished.spoofchk is None and found.spoofchk and found.mac == NO_MAC)
    if checked and wished.mac is None and found.mac is not None:
        wished = replace(wished, mac=netdev_mac if found.mac == NO_MAC else found.mac)
    zeros = ("min_tx_rate", "max_tx_rate", "vlan", "qos", "trust", "spoofchk")
    unknown = [name for name in zeros if getattr(found, name) is None]
    wished = replace(wished, **{name: None for name in unknown if getattr(wished, name) == 0})
    return replace(
        wished,
        min_tx_rate=0 if wished.min_tx_rate is None and found.min_tx_rate else wished.min_tx_rate,
        max_tx_rate=0 if wished.max_tx_rate is None and found.max_tx_rate else wished.max_tx_rate,
    )


def with_default_share(
    settings: VfSettings, found: VfSettings, link: names.LinkType, share_mbps: int
) -> tuple[VfSettings, bool]:
    """Return the settings, with the operator's share as min_tx_rate if the pod requests none, and whether it applies.

    ``share_mbps`` is in Mb/s. The share never exceeds the pod's own max_tx_rate: the kernel refuses such a pair
    (rtnl_set_vf_rate in net/core/rtnetlink.c).
    """
    if not share_mbps or settings.min_tx_rate or found.min_tx_rate is None or link != "ethernet":
        return settings, False
    return replace(settings, min_tx_rate=min(share_mbps, settings.max_tx_rate or share_mbps)), True


def check_mtu(vf: AssignedVf, wanted: int | None, limit: int | None) -> None:
    """Raise CniError 101 if a network's MTU exceeds that of the VF's PF: the port would drop longer frames silently."""
    if wanted is not None and limit is not None and wanted > limit:
        what = f"vf {vf.vf} of pf {vf.pf!r}: mtu {wanted} of network {vf.network!r} exceeds its pf's mtu of {limit}"
        raise CniError(
            NIC_REFUSED,
            what,
            "the port drops longer frames: raise the PF's mtu, for example with init.mtu in the offer",
        )


def check_own_mtu(vf: AssignedVf, mtu: int | None, limit: int | None) -> None:
    """Raise CniError 101 if the present MTU of a VF's netdev, which it would keep, exceeds that of the VF's PF."""
    if mtu is not None and limit is not None and mtu > limit:
        what = f"vf {vf.vf} of pf {vf.pf!r}: its netdev has mtu {mtu}, which exceeds its pf's mtu of {limit}"
        advice = "the port drops longer frames: lower the VF's mtu, raise the PF's mtu, or set an mtu for the network"
        raise CniError(NIC_REFUSED, what, advice)


def probed_mac(found: VfSettings, netdev_mac: str | None) -> str | None:
    """Return the MAC from which a VF can get its missing node GUID: its admin MAC, or else that of its netdev.

    Return None if the PF does not report admin MACs, or the VF has no MAC at all.
    """
    if found.mac is None:
        return None
    return found.mac if found.mac != NO_MAC else netdev_mac


def changes(wanted: VfSettings, found: VfSettings) -> VfSettings:
    """Return the settings that a VF does not have yet; a NIC may refuse to set a value again.

    The settings of one netlink attribute stay together; one that the pod does not request is sent as 0. MAC and GUID
    are always written. ice, i40e and bnxt report the VF's own MAC if none was set (ice_get_vf_cfg,
    i40e_ndo_get_vf_config, bnxt_get_vf_config), and a port GUID cannot be read.
    """
    kept: dict[str, object] = {}
    for attribute in ATTRIBUTES:
        present = {name: value for name in attribute if (value := getattr(wanted, name)) is not None}
        is_as_found = all((getattr(wanted, name) or 0) == (getattr(found, name) or 0) for name in attribute)
        if attribute in (("mac",), ("guid",)) or not is_as_found:
            kept |= present
    return replace(VfSettings(), **kept)  # type: ignore[arg-type]


def with_spoof_check(changed: VfSettings, wanted: VfSettings, found: VfSettings) -> VfSettings:
    """Return the changes, with spoof check added if it must be on, even if the PF reports it as on already.

    The PF may report it as on although it is not in force: after a PF refused a setting (`mooring.nic.write_again`),
    and on ixgbe after a VF got a second MAC (ixgbe_set_vf_macvlan_msg).
    """
    is_on = found.spoofchk if wanted.spoofchk is None else wanted.spoofchk
    return replace(changed, spoofchk=True) if is_on else changed


def one_by_one(settings: VfSettings) -> list[VfSettings]:
    """Split settings by netlink attribute, to find the one that a NIC refuses; the kernel does not report which."""
    present = settings.to_fields()
    pieces = [{name: present[name] for name in attribute if name in present} for attribute in ATTRIBUTES]
    return [replace(VfSettings(), **piece) for piece in pieces if piece]  # type: ignore[arg-type]


def refusal_text(vf: AssignedVf | LedgerEntry, settings: VfSettings, *refused: OSError) -> str:
    """Return the error text for a refused setting: PF, VF, setting, and the kernel's reasons."""
    what = ", ".join(f"{name} {value}" for name, value in settings.to_fields().items())
    return f"pf {vf.pf!r} refuses {what} for vf {vf.vf}" + "".join(f": {symbol(reason)}" for reason in refused)


def contradiction_text(vf: AssignedVf | LedgerEntry, wrong: Iterable[str]) -> str:
    """Return the error text for a PF that accepts settings but then reports others; ``wrong`` are the `differences`."""
    return f"pf {vf.pf!r} accepted the settings of vf {vf.vf}, but {'; '.join(wrong)}"


def reserved_mbps(
    found: Mapping[int, VfSettings], wanted: Mapping[int, VfSettings], shares: Collection[int] = ()
) -> int:
    """Return the sum of the min rates of a PF's VFs in Mb/s, once the ``wanted`` settings are set.

    ``shares`` are the VFs whose min rate is a default share, which reserves nothing.
    """
    after = {vf: settings.min_tx_rate or 0 for vf, settings in found.items()}
    after |= {vf: settings.min_tx_rate for vf, settings in wanted.items() if settings.min_tx_rate is not None}
    return sum(low for vf, low in after.items() if vf not in shares)


def check_rates(
    pf: str,
    line_mbps: int,
    found: Mapping[int, VfSettings],
    wanted: Mapping[int, VfSettings],
    beside: int = 0,
    shares: Collection[int] = (),
) -> None:
    """Raise CniError 101 if the min rates of a PF's VFs would exceed its line rate, in Mb/s.

    ``beside`` is the sum of the min rates on other PFs of the same cable. ``shares`` is as in `reserved_mbps`.
    """
    if not any(settings.min_tx_rate for vf, settings in wanted.items() if vf not in shares):
        return
    total = reserved_mbps(found, wanted, shares) + beside
    if total > line_mbps:
        on_cable = f", {beside} of them on other PFs of the same cable," if beside else ""
        raise CniError(
            NIC_REFUSED,
            f"pf {pf!r}: min rates of {total} Mb/s{on_cable} would exceed its line rate of {line_mbps} Mb/s",
        )


def differences(wanted: VfSettings, found: VfSettings) -> list[str]:
    """Describe each setting that has another value than wanted."""
    return [
        f"{name} is {getattr(found, name)!r}, not {wish!r}"
        for name in SETTING_NAMES
        if (wish := getattr(wanted, name)) is not None and getattr(found, name) != wish
    ]
