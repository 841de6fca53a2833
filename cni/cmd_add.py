"""ADD: find the VFs of the call, ensure that no other sandbox holds them, and attach them."""

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import structlog

from cni.kernel import netns
from cni.kernel.inotify import watch_folders
from cni.plan import attachment
from cni.spec.capabilities import check_capabilities
from cni.spec.conf import Conf
from cni.spec.result import AttachedVf, add_result, pass_through
from cni.spec.skel import BAD_ENVIRONMENT, REFUSAL, TRY_AGAIN, Call, CniError
from cni.vf import own_ipam
from cni.vf.attach.attach import attach
from cni.vf.detach.detach import detach
from cni.vf.node import INIT_PENDING, RETURNS_S, Node, in_host_netns, is_prepared
from mooring.annotations.assignment import AssignedVf
from mooring.errors import RecordError
from mooring.locks import LockBusyError, hold_locks
from mooring.records import sandbox_marks
from mooring.records.ledger import FOLDER, LedgerEntry
from mooring.records.pod_record import PodRecord
from mooring.records.rates_record import with_recorded_rates

_log = structlog.get_logger()
_MOST_THREADS = 8


def run(node: Node, call: Call, conf: Conf) -> dict[str, object]:
    """Run ADD and return its result; a pod without VFs in a chain gets the chain's result so far."""
    uid = call.args.get("K8S_POD_UID", "")
    record = attachment.record_to_apply(call, conf, _record(node, uid, conf))
    vfs = attachment.vfs_of_call(record, conf) if record is not None else ()
    if vfs or conf.previous is None:
        conf.check()
        own_ipam.check(conf)
    if record is None or not vfs:
        return pass_through(conf.previous, conf.version)
    check_capabilities(call, conf, vfs)
    _check_place(node, call, conf)
    _check_mark(node, call, record)
    attached_vfs = _lock_and_attach(node, call, conf, record, vfs)
    _log.info("vfs attached", pod=record.pod, uid=uid, container=call.container, vfs={vf.pci: vf.pf for vf in vfs})
    return add_result(conf.previous, conf.version, call.netns or "", attached_vfs, conf.dns)


def _record(node: Node, uid: str, conf: Conf) -> PodRecord | None:
    """Return the record of a pod.

    An unreadable record does not stop a pod whose annotations are known and request no VFs.
    """
    try:
        return node.ledger.pod(uid)
    except (RecordError, OSError) as unreadable:
        if not conf.sends_annotations or conf.asks_for_vfs:
            raise
        _log.error("pod record is ignored", uid=uid, reason=str(unreadable))
        return None


def _check_place(node: Node, call: Call, conf: Conf) -> None:
    """Raise CniError if the node's VFs are not prepared yet, or CNI_NETNS is the host's own namespace."""
    if conf.await_init and not is_prepared(node):
        raise CniError(TRY_AGAIN, INIT_PENDING)
    try:
        is_ours = netns.cookie_of(call.netns or "") == netns.own_cookie()
    except netns.NetnsGoneError as error:
        raise CniError(
            BAD_ENVIRONMENT, f"CNI_NETNS {call.netns!r:.160} cannot be entered", str(error.strerror)
        ) from error
    if is_ours:
        raise CniError(BAD_ENVIRONMENT, f"CNI_NETNS {call.netns!r} is the host's own network namespace")


def _check_mark(node: Node, call: Call, record: PodRecord) -> None:
    """Raise CniError unless the CRI shim is forwarding the call that creates this sandbox.

    Containers of other sandboxes would lack their devices. The runtime names the pod in CNI_ARGS: containerd in
    toCNILabels (internal/cri/server/sandbox_run.go), CRI-O in buildCNIRuntimeConf (ocicni, pkg/ocicni/ocicni.go). CRI-O
    finishes a sandbox even if the kubelet's call has timed out (networkStart, server/sandbox_network.go). The ADD of
    such a sandbox belongs to no call, or to the kubelet's next call for the same pod.
    """
    if not sandbox_marks.are_needed(node.ledger.state, node.run):
        return
    pod = record.pod
    match sandbox_marks.claim(node.run, record.assignment.uid, call.container):
        case "none":
            text = f"the CRI shim has no RunPodSandbox call in progress for pod {pod!r}: was it bypassed?"
            raise CniError(REFUSAL, text)
        case "taken":
            raise CniError(REFUSAL, f"the CRI shim is creating another sandbox of pod {pod!r}, not this one")
        case "ended":
            raise CniError(TRY_AGAIN, f"the CRI shim stopped while it was creating the sandbox of pod {pod!r}")


def _lock_and_attach(
    node: Node, call: Call, conf: Conf, record: PodRecord, vfs: Sequence[AssignedVf]
) -> list[AttachedVf]:
    """Wait until no other sandbox holds one of the VFs, then attach them; raise CniError 11 that names the holder.

    It watches the ledger, which changes when a VF is released, and the folder of the holder's namespace, which changes
    when a sandbox dies without a DEL.
    """
    pcis = [vf.pci for vf in vfs]
    deadline = time.monotonic() + conf.hold_s

    def attempt() -> list[AttachedVf] | LedgerEntry:
        with _hold_locks(node, pcis, deadline):
            holder = _free_stale(node, call, pcis, deadline)
            if holder is not None:
                return holder
            # Under the locks: the server records changed rates with the locks of all the pod's VFs.
            new_record = with_recorded_rates(record, node.ledger.rates(record.assignment.uid))
            return attach(node, call, conf, new_record, attachment.vfs_of_call(new_record, conf))

    # Try once without a watch: the kernel takes milliseconds to end one, and a call rarely has to wait.
    if isinstance(outcome := attempt(), list):
        return outcome
    with watch_folders(node.ledger.state / FOLDER) as watch:
        while isinstance(outcome := attempt(), LedgerEntry):
            text = _holder(outcome)
            if time.monotonic() >= deadline:
                raise CniError(TRY_AGAIN, text)
            watch.add(Path(outcome.netns.path).parent)
            if not watch.wait(deadline - time.monotonic(), call.caller):
                raise CniError(TRY_AGAIN, "the caller stopped waiting", text)
    return outcome


@contextmanager
def _hold_locks(node: Node, pcis: Sequence[str], deadline: float) -> Iterator[None]:
    """Hold the locks of the VFs; raise CniError 11 that names the holder if they are not free in time."""
    with ExitStack() as locks:
        try:
            locks.enter_context(hold_locks(node.run, pcis, max(deadline - time.monotonic(), 0)))
        except LockBusyError as error:
            entries = (node.ledger.read(pci) for pci in pcis)
            holders = [_holder(entry) for entry in entries if entry is not None]
            raise CniError(TRY_AGAIN, str(error), "; ".join(holders)) from error
        yield


def _holder(entry: LedgerEntry) -> str:
    return f"vf {entry.pci} is still held by pod {entry.pod!r} (uid {entry.uid}, {entry.phase})"


def _free_stale(node: Node, call: Call, pcis: Sequence[str], deadline: float) -> LedgerEntry | None:
    """Release the VFs that this sandbox or a dead one left; return the entry of a VF that is still held.

    VFs are released in parallel: a netdev that the kernel created again may have another VF's name, and waits until
    that VF is released and its own name is free.
    """
    stale: list[LedgerEntry] = []
    holder = None
    for pci in pcis:
        entry = node.ledger.read(pci)
        if entry is None:
            continue
        _check_attachment(call, entry)
        if entry.container != call.container and _is_in_use(node, entry, deadline):
            holder = entry
            break
        stale.append(entry)
    with ThreadPoolExecutor(_MOST_THREADS, "free") as pool:
        outcomes = list(pool.map(lambda entry: detach(node, entry), stale))
    return holder or next((entry for entry, free in zip(stale, outcomes, strict=True) if not free), None)


def _check_attachment(call: Call, entry: LedgerEntry) -> None:
    """Raise CniError if the VF already belongs to another interface of this sandbox: one network, one delegate."""
    ifname = entry.attachment.ifname if entry.attachment is not None else call.ifname
    if entry.phase == "held" and entry.container == call.container and ifname != call.ifname:
        raise CniError(REFUSAL, f"vf {entry.pci} is already attached to this sandbox as interface {ifname!r}")


def _is_in_use(node: Node, entry: LedgerEntry, deadline: float) -> bool:
    """Return whether a live sandbox holds a VF.

    A sandbox is also live if the path of its namespace is gone but a process keeps the namespace.
    """
    if entry.boot != node.boot or entry.phase == "returning":
        return False
    if netns.is_same(entry.netns.path, entry.netns.cookie):
        return True
    return node.sysfs.exists(entry.pci) and not in_host_netns(node, entry, _return_limit_s(deadline))


def _return_limit_s(deadline: float) -> float:
    return min(RETURNS_S, max(deadline - time.monotonic(), 0.1))
