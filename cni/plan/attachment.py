"""Decide what an ADD does: which VFs it attaches, with which names, settings and rates."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from cni.spec.conf import Conf
from cni.spec.skel import BAD_CONFIG, NIC_REFUSAL, REFUSAL, Call, CniError
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
        raise CniError(REFUSAL, f"pod {pod!r} requests VFs, but the CRI shim has no record of them: was it bypassed?")
    if conf.node is not None and record.assignment.node != conf.node:
        raise CniError(
            REFUSAL, f"pod {pod!r} has VFs on node {record.assignment.node!r}, but this is node {conf.node!r}"
        )
    _check_same_assignment(conf.annotations, record, pod)
    return record


def _check_same_assignment(annotations: Mapping[str, str], record: PodRecord, pod: str) -> None:
    if names.ASSIGNMENT not in annotations:
        return
    try:
        assignment = verified_assignment(annotations, record.assignment.uid, record.assignment.node)
    except AnnotationError as unreadable:
        raise CniError(REFUSAL, f"pod {pod!r}", str(unreadable)) from unreadable
    if assignment != record.assignment:
        raise CniError(
            REFUSAL, f"the assignment of pod {pod!r} differs from the one recorded when its sandbox was created"
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
    is_chained = previous is not None
    if not is_chained and not names.is_interface(ifname):
        raise CniError(BAD_CONFIG, f"CNI_IFNAME {ifname[:80]!r} is not an interface name")
    result_names = {interface.get("name") for interface in (previous or {}).get("interfaces") or ()}
    used_names = result_names | set(in_pod) | {vf.name for vf in vfs if vf.name is not None}
    net_names = [f"net{number}" for number in range(1, len(vfs) + len(used_names) + 2)]
    # Multus calls its delegates with CNI_IFNAME net1, net2, ….
    candidates = net_names if is_chained else [ifname, *(name for name in net_names if name != ifname)]
    free_names = (name for name in candidates if name not in used_names)
    order = sorted(range(len(vfs)), key=lambda index: vfs[index].netdev is False)
    names_by_index = {index: vfs[index].name or next(free_names) for index in order}
    return tuple(names_by_index[index] for index in range(len(vfs)))


def check_names(record: PodRecord, vfs: Sequence[AssignedVf], conf: Conf, ifname: str) -> None:
    """Raise CniError 100 if a VF would get a name that Multus gives to the delegate of another network.

    Multus names its delegates net1, net2, …, and the second unnamed VF of one delegate would get such a name.
    """
    nameless_vfs = [vf for vf in vfs if vf.name is None and vf.netdev is not False]
    networks = {vf.network for vf in record.assignment.vfs} - {conf.network}
    if conf.network is not None and networks and len(nameless_vfs) > 1 and _OF_MULTUS.fullmatch(ifname):
        raise CniError(
            REFUSAL,
            f"pod {record.pod!r} has {len(nameless_vfs)} unnamed VFs of network {conf.network!r} and VFs of "
            f"{', '.join(sorted(networks))}: Multus names its delegates net1, net2, …, so the request must name all "
            "but one",
        )


# The settings that one netlink attribute carries, in the kernel's order (do_setvfinfo in net/core/rtnetlink.c).
ATTRIBUTES: tuple[tuple[str, ...], ...] = (
    *(("mac",), ("vlan", "qos"), ("min_tx_rate", "max_tx_rate"), ("spoofchk",), ("link_state",), ("trust",)),
    ("guid",),
)
NO_MAC = "00:00:00:00:00:00"


def effective_settings(
    request: VfSettings, current: VfSettings, netdev_mac: str | None = None, link: names.LinkType = "ethernet"
) -> VfSettings:
    """Return the settings to set: those of the pod's request, and rate 0 for a rate that it does not request.

    A request for 0 or false is dropped if the NIC does not support the setting. Spoof check limits a VF to its admin
    MAC. If the pod requests the check, a netdev with another MAC gets the admin MAC. A VF without an admin MAC gets
    that of its netdev, even if the check was already on and the pod does not request it. An InfiniBand VF starts with
    the policy Down, read as "disable" (mlx_to_net_policy in the kernel's drivers/infiniband/hw/mlx5/ib_virt.c). Its
    port would never become active, so it gets "auto".
    """
    if link == "infiniband" and request.link_state is None and current.link_state == "disable":
        request = replace(request, link_state="auto")
    needs_mac = request.spoofchk or (request.spoofchk is None and current.spoofchk and current.mac == NO_MAC)
    if needs_mac and request.mac is None and current.mac is not None:
        request = replace(request, mac=netdev_mac if current.mac == NO_MAC else current.mac)
    zeros = ("min_tx_rate", "max_tx_rate", "vlan", "qos", "trust", "spoofchk")
    missing_names = [name for name in zeros if getattr(current, name) is None]
    request = replace(request, **{name: None for name in missing_names if getattr(request, name) == 0})
    return replace(
        request,
        min_tx_rate=0 if request.min_tx_rate is None and current.min_tx_rate else request.min_tx_rate,
        max_tx_rate=0 if request.max_tx_rate is None and current.max_tx_rate else request.max_tx_rate,
    )


def with_default_share(
    settings: VfSettings, current: VfSettings, link: names.LinkType, share_mbps: int
) -> tuple[VfSettings, bool]:
    """Return the settings, with the operator's share as min_tx_rate if the pod requests none, and whether it applies.

    ``share_mbps`` is in Mb/s. The share never exceeds the pod's own max_tx_rate: the kernel refuses such a pair
    (rtnl_set_vf_rate in net/core/rtnetlink.c).
    """
    if not share_mbps or settings.min_tx_rate or current.min_tx_rate is None or link != "ethernet":
        return settings, False
    return replace(settings, min_tx_rate=min(share_mbps, settings.max_tx_rate or share_mbps)), True


def check_mtu(vf: AssignedVf, mtu: int | None, limit: int | None) -> None:
    """Raise CniError 101 if a network's MTU exceeds that of the VF's PF: the port would drop longer frames silently."""
    if mtu is not None and limit is not None and mtu > limit:
        text = f"vf {vf.vf} of pf {vf.pf!r}: mtu {mtu} of network {vf.network!r} exceeds its pf's mtu of {limit}"
        raise CniError(
            NIC_REFUSAL,
            text,
            "the port drops longer frames: raise the PF's mtu, for example with init.mtu in the offer",
        )


def check_own_mtu(vf: AssignedVf, mtu: int | None, limit: int | None) -> None:
    """Raise CniError 101 if the present MTU of a VF's netdev, which it would keep, exceeds that of the VF's PF."""
    if mtu is not None and limit is not None and mtu > limit:
        text = f"vf {vf.vf} of pf {vf.pf!r}: its netdev has mtu {mtu}, which exceeds its pf's mtu of {limit}"
        advice = "the port drops longer frames: lower the VF's mtu, raise the PF's mtu, or set an mtu for the network"
        raise CniError(NIC_REFUSAL, text, advice)


def probed_mac(current: VfSettings, netdev_mac: str | None) -> str | None:
    """Return the MAC from which a VF can get its missing node GUID: its admin MAC, otherwise that of its netdev.

    Return None if the PF does not report admin MACs, or the VF has no MAC at all.
    """
    if current.mac is None:
        return None
    return current.mac if current.mac != NO_MAC else netdev_mac


def changes(target: VfSettings, current: VfSettings) -> VfSettings:
    """Return the settings that a VF does not have yet; a NIC may refuse to set a value again.

    The settings of one netlink attribute stay together; one that the pod does not request is sent as 0. MAC and GUID
    are always written. ice, i40e and bnxt report the VF's own MAC if none was set (ice_get_vf_cfg,
    i40e_ndo_get_vf_config, bnxt_get_vf_config), and a port GUID cannot be read.
    """
    fields: dict[str, object] = {}
    for attribute in ATTRIBUTES:
        present = {name: value for name in attribute if (value := getattr(target, name)) is not None}
        is_equal = all((getattr(target, name) or 0) == (getattr(current, name) or 0) for name in attribute)
        if attribute in (("mac",), ("guid",)) or not is_equal:
            fields |= present
    return replace(VfSettings(), **fields)  # type: ignore[arg-type]


def with_spoof_check(changes: VfSettings, target: VfSettings, current: VfSettings) -> VfSettings:
    """Return the changes, with spoof check added if it must be on, even if the PF reports it as on already.

    The PF may report it as on although it is not in force: after a PF refused a setting (`mooring.nic.write_again`),
    and on ixgbe after a VF got a second MAC (ixgbe_set_vf_macvlan_msg).
    """
    is_on = current.spoofchk if target.spoofchk is None else target.spoofchk
    return replace(changes, spoofchk=True) if is_on else changes


def split_settings(settings: VfSettings) -> list[VfSettings]:
    """Split settings by netlink attribute, to find the one that a NIC refuses; the kernel does not report which."""
    present = settings.to_fields()
    pieces = [{name: present[name] for name in attribute if name in present} for attribute in ATTRIBUTES]
    return [replace(VfSettings(), **piece) for piece in pieces if piece]  # type: ignore[arg-type]


def refusal_text(vf: AssignedVf | LedgerEntry, settings: VfSettings, *errors: OSError) -> str:
    """Return the error text for a refused setting: PF, VF, setting, and the kernel's reasons."""
    values = ", ".join(f"{name} {value}" for name, value in settings.to_fields().items())
    return f"pf {vf.pf!r} refuses {values} for vf {vf.vf}" + "".join(f": {symbol(error)}" for error in errors)


def contradiction_text(vf: AssignedVf | LedgerEntry, texts: Iterable[str]) -> str:
    """Return the error text for a PF that accepts settings but then reports others; ``texts`` are the `differences`."""
    return f"pf {vf.pf!r} accepted the settings of vf {vf.vf}, but {'; '.join(texts)}"


def reserved_mbps(
    current: Mapping[int, VfSettings], target: Mapping[int, VfSettings], shares: Collection[int] = ()
) -> int:
    """Return the sum of the min rates of a PF's VFs in Mb/s, once the ``target`` settings are set.

    ``shares`` are the VFs whose min rate is a default share, which reserves nothing.
    """
    min_rates = {vf: settings.min_tx_rate or 0 for vf, settings in current.items()}
    min_rates |= {vf: settings.min_tx_rate for vf, settings in target.items() if settings.min_tx_rate is not None}
    return sum(low for vf, low in min_rates.items() if vf not in shares)


def check_rates(
    pf: str,
    line_mbps: int,
    current: Mapping[int, VfSettings],
    target: Mapping[int, VfSettings],
    other_mbps: int = 0,
    shares: Collection[int] = (),
) -> None:
    """Raise CniError 101 if the min rates of a PF's VFs would exceed its line rate, in Mb/s.

    ``other_mbps`` is the sum of the min rates on other PFs of the same cable. ``shares`` is as in `reserved_mbps`.
    """
    if not any(settings.min_tx_rate for vf, settings in target.items() if vf not in shares):
        return
    total = reserved_mbps(current, target, shares) + other_mbps
    if total > line_mbps:
        on_cable = f", {other_mbps} of them on other PFs of the same cable," if other_mbps else ""
        raise CniError(
            NIC_REFUSAL,
            f"pf {pf!r}: min rates of {total} Mb/s{on_cable} would exceed its line rate of {line_mbps} Mb/s",
        )


def differences(target: VfSettings, current: VfSettings) -> list[str]:
    """Describe each setting whose value is not the target."""
    return [
        f"{name} is {getattr(current, name)!r}, not {value!r}"
        for name in SETTING_NAMES
        if (value := getattr(target, name)) is not None and getattr(current, name) != value
    ]
