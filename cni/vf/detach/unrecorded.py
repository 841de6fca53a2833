"""Find VFs of a sandbox without a ledger entry: those of its pod's record that are in the sandbox's namespace.

Such a VF gets an entry with the phase `returning`, so that it is released like any other. Its original state is
unknown, so it gets a NIC's defaults. MAC and spoof check stay as they are and are written again, because the PF may
have refused a setting. VFs that another plugin attached, or that are elsewhere, do not count. A VF that is only an RDMA
device is found in exclusive mode; in shared mode nothing of it is in the sandbox.
"""

from collections.abc import Collection, Iterable, Sequence

import structlog

from cni.kernel import netlink, netns, rdma
from cni.plan.attachment import vfs_of_call
from cni.spec.conf import Conf
from cni.spec.skel import Call
from cni.vf.node import Node, recorded_device, recorded_name, temporary_name
from mooring import names
from mooring.annotations.assignment import AssignedVf
from mooring.errors import RecordError
from mooring.files import ForeignFileError
from mooring.locks import hold
from mooring.nic.settings import VfSettings
from mooring.records.ledger import LedgerEntry, Netns, Original
from mooring.records.pod_record import PodRecord

_log = structlog.get_logger()
_LOCK_S = 30.0
# Without the MAC, which an mlx5 VF needs for its node GUID, and without spoof check, which `init` may have turned on.
_DEFAULTS = VfSettings(0, 0, None, 0, 0, trust=False, link_state="auto")


def add_to_ledger(node: Node, call: Call, conf: Conf) -> Collection[str]:
    """Add ledger entries for a sandbox's lost VFs; none can be found without its namespace or its pod's record.

    Return the PCI addresses of the VFs in its pod's record.
    """
    record = _pod_record(node, call)
    if record is None:
        return ()
    vfs = vfs_of_call(record, conf)
    lost_vfs = [vf for vf in vfs if _is_unrecorded(node, vf)]
    if lost_vfs and call.netns is not None:
        _add(node, call, record, lost_vfs, call.netns)
    return [vf.pci for vf in vfs]


def _add(node: Node, call: Call, record: PodRecord, lost_vfs: Sequence[AssignedVf], path: str) -> None:
    try:
        cookie = netns.cookie_of(path)
        if cookie == netns.own_cookie():
            return
        links = netns.run_in(path, lambda: {vf.pci: netlink.with_parent(vf.pci) for vf in lost_vfs})
        devices = (
            netns.run_in(path, lambda: _with_device(node, lost_vfs)) if rdma.mode() == "exclusive" else frozenset()
        )
    except OSError:
        return
    for vf in lost_vfs:
        if (link := links.get(vf.pci)) is not None or vf.pci in devices:
            _record_vf(node, call, record, vf, link, Netns(path, cookie))


def _with_device(node: Node, vfs: Iterable[AssignedVf]) -> frozenset[str]:
    return frozenset(vf.pci for vf in vfs if rdma.device_of(node.sysfs, vf.pci) is not None)


def _pod_record(node: Node, call: Call) -> PodRecord | None:
    uid = call.args.get("K8S_POD_UID", "")
    try:
        return node.ledger.pod(uid)
    except (RecordError, OSError) as unreadable:
        _log.error("pod record is ignored", reason=str(unreadable))
        return None


def _is_unrecorded(node: Node, vf: AssignedVf) -> bool:
    """Return whether a VF has no valid entry; False if its file cannot be read now, because it may be valid."""
    try:
        return node.ledger.read(vf.pci) is None
    except (RecordError, ForeignFileError):
        return True
    except OSError:
        return False


def _record_vf(
    node: Node, call: Call, record: PodRecord, vf: AssignedVf, link: netlink.Link | None, space: Netns
) -> None:
    with hold(node.run, vf.pci, _LOCK_S):
        if not _is_unrecorded(node, vf):
            return
        try:
            current = node.vf_settings.read(vf.pf, vf.vf)
        except OSError as unknown:
            _log.error("vf without a ledger entry is not changed", pci=vf.pci, reason=str(unknown))
            return
        has_netdev = link is not None or not node.sysfs.lacks_netdev(vf.pci)
        entry = LedgerEntry(
            pci=vf.pci,
            pf=vf.pf,
            vf=vf.vf,
            phase="returning",
            boot=node.boot,
            uid=record.assignment.uid,
            pod=record.pod,
            container=call.container,
            ifname=recorded_name(vf.pci, link.name) if link is not None else temporary_name(vf.pci),
            netns=space,
            original=Original(
                _host_name(vf) if has_netdev else None,
                settings=_defaults(current),
                parent=link.parent if link is not None else None,
            ),
            set=current,
            rdma=recorded_device(node, vf.pci),
            rdma_only=vf.netdev is False,
            in_doubt=True,
        )
        node.ledger.write(entry)
        _log.warning(
            "found a vf in its pod without a ledger entry", pci=vf.pci, pod=record.pod, container=call.container
        )


def _host_name(vf: AssignedVf) -> str:
    """Return the name that udev gives to this VF, or the temporary name if that is invalid or taken."""
    usual = f"{vf.pf}v{vf.vf}"
    return usual if names.is_interface(usual) and netlink.find(usual) is None else temporary_name(vf.pci)


def _defaults(current: VfSettings) -> VfSettings:
    return VfSettings(**{name: getattr(_DEFAULTS, name) for name in current.to_fields()})
