"""Refuse an ADD or a driver rebind that would take a VF from the host (`mooring.nic.vf_users` decides)."""

from collections.abc import Collection, Sequence
from dataclasses import replace

from cni.kernel.sysfs import Sysfs
from cni.spec.skel import REFUSAL, CniError
from cni.vf.node import Node
from mooring.annotations.assignment import AssignedVf
from mooring.folders import record_names
from mooring.nic.host_facts import read_facts, read_vf
from mooring.nic.vf_users import RDMA_IN_OTHER_NAMESPACE, user_of
from mooring.records import ledger


def check_vfs_free(node: Node, vfs: Sequence[AssignedVf]) -> None:
    """Raise CniError 100 for a VF that the host uses; the caller has checked that no pod holds it. Raise OSError.

    A VF whose RDMA device is in another namespace passes: the attachment reports that with another code and the
    device's name.
    """
    users = _users(node, [vf.pci for vf in vfs])
    for vf, user in zip(vfs, users, strict=True):
        if user not in (None, RDMA_IN_OTHER_NAMESPACE):
            raise CniError(REFUSAL, f"vf {vf.vf} of pf {vf.pf!r} ({vf.pci}) is not available for a pod: {user}")


def user_before_pod(node: Node, pci: str) -> str | None:
    """Return how the host uses a VF that is being attached, None if it does not; raise OSError."""
    (user,) = _users(node, [pci])
    return user


def user_beside_pod(sysfs: Sysfs, pci: str) -> str | None:
    """Return how the host uses a VF that a pod had, None if it does not; raise OSError.

    Processes on its RDMA device do not count here: those that opened it after ADD are considered the pod's.
    """
    vf = replace(read_vf(sysfs.root, pci), rdma=(), rdma_away=False)
    return user_of(vf, read_facts(sysfs.root, {}, [vf]))


def _users(node: Node, pcis: Collection[str]) -> list[str | None]:
    names = record_names(node.ledger.state / ledger.FOLDER, ledger.IS_NAME)
    entry_pcis = (name.removesuffix(".json") for name in names)
    pods = {pci: "a pod" for pci in entry_pcis if pci not in pcis}
    vfs = [read_vf(node.sysfs.root, pci) for pci in pcis]
    facts = read_facts(node.sysfs.root, pods, vfs)
    return [user_of(vf, facts) for vf in vfs]
