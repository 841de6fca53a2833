"""InfiniBand VFs of pods whose port has not become active: part of the server's fault report.

A port becomes active when the subnet manager gives it an address. It never does if the VF has no GUID, if its link
state is "disable", or if the subnet manager does not support virtual ports (`virt_enabled 2` of opensm). The state is
read in sysfs where the host sees the device, else by RDMA netlink in the pod's network namespace (exclusive mode). A
port that was active once is not read again.
"""

import time
from collections.abc import Callable, Iterator

import structlog

from cni.kernel import netns, rdma
from cni.vf.node import Node
from mooring.files import read_file
from mooring.nic.function_devices import own_rdma_devices
from mooring.records.ledger import LedgerEntry
from mooring.records.vf_faults import InactivePort

_log = structlog.get_logger()
# A subnet manager sweeps at once when a port appears; opensm's own sweeps are 10 s apart.
LIMIT_S = 30.0
# IB_PORT_* of include/uapi/rdma/ib_user_verbs.h; sysfs shows them as ``4: ACTIVE`` (state_show in core/sysfs.c).
_STATES = {1: "DOWN", 2: "INIT", 3: "ARMED", 4: "ACTIVE", 5: "ACTIVE_DEFER"}
_ACTIVE = 4
# A VF and the container that holds it.
_Hold = tuple[str, str]


class InactivePorts:
    """The ports of one node; remembers since when each VF is held, and which ports were active."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since: dict[_Hold, float] = {}
        self._active: set[_Hold] = set()

    def find(self, node: Node) -> Iterator[InactivePort]:
        """Yield the ports that are not active although their VF has been held for `LIMIT_S`."""
        now = self._clock()
        entries = {
            (entry.pci, entry.container): entry for entry in node.ledger.content().entries if _counts(node, entry)
        }
        self._since = {hold: self._since.get(hold, now) for hold in entries}
        self._active &= entries.keys()
        for hold, entry in entries.items():
            if hold in self._active or now - self._since[hold] < LIMIT_S:
                continue
            state = _state(node, entry)
            if state == _ACTIVE:
                self._active.add(hold)
            elif state is not None:
                name = _STATES.get(state, str(state))
                yield InactivePort(entry.pod, entry.uid, entry.pf, entry.vf, entry.pci, name)


def _counts(node: Node, entry: LedgerEntry) -> bool:
    """Return whether a VF is in a pod that wants its port active."""
    return entry.phase == "held" and entry.boot == node.boot and entry.set.link_state != "disable"


def _state(node: Node, entry: LedgerEntry) -> int | None:
    """Return the state of an InfiniBand VF's port; None for Ethernet, and for a state that cannot be read."""
    functions = node.sysfs.root / "bus/pci/devices"
    try:
        pf = functions / node.sysfs.pf_of(entry.pci)
        (pf_device, *_) = own_rdma_devices(pf)
        if (read_file(pf / "infiniband" / pf_device / "ports/1/link_layer") or "").strip() != "InfiniBand":
            return None
        if devices := own_rdma_devices(functions / entry.pci):
            text = read_file(functions / entry.pci / "infiniband" / devices[0] / "ports/1/state") or ""
            return int(text.partition(":")[0])
        return netns.run_in(entry.netns.path, lambda: rdma.port_state(node.sysfs, entry.pci))
    except (OSError, ValueError, netns.NetnsGoneError) as error:
        _log.debug("port state cannot be read", pci=entry.pci, reason=str(error))
        return None
