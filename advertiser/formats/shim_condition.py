"""The node's condition that its kubelet does not speak to the CRI shim, and the Event on the node when that changes.

Both are made of what `mooring-node check` has left on the host (`mooring.records.node_check`), and of what
mooring-shim-bypass has, which leads the kubelet past a shim that has failed (`mooring.records.shim_bypass`). As with
the kubelet's own ones, MemoryPressure and its like, False is good. No file says nothing: then Mooring's part of the
node is not installed.
"""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Literal, Protocol, Self

from mooring.parsing import dump
from mooring.records.node_check import NodeCheck
from mooring.records.shim_bypass import ShimBypass

TYPE = "mooring.dev/ShimBypassed"
Status = Literal["True", "False", "Unknown"]
# Of the metric: what the kubelet is told, that it is led past a failed shim, and that nobody has looked for long.
SocketState = Literal["shim", "runtime", "bypass", "failed", "unknown", "stale"]
# The check runs every two minutes: some may fail or wait before it is said.
STALE = timedelta(minutes=15)
# A node's condition is read by people; the check's own bound is 512.
_LONGEST = 1024
_COMPONENT = "mooring-advertiser"
SHIM_FAILED = "ShimFailed"
_REASONS: dict[SocketState, tuple[Status, str]] = {
    "shim": ("False", "KubeletUsesShim"),
    "runtime": ("True", "KubeletPastShim"),
    "bypass": ("True", "BypassOn"),
    "failed": ("True", SHIM_FAILED),
    "unknown": ("Unknown", "NotKnown"),
    "stale": ("Unknown", "NotChecked"),
}


class _Condition(Protocol):
    """A condition of the node as it was decoded."""

    type: str
    status: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class ShimCondition:
    """What the condition says, without its times."""

    status: str
    reason: str
    message: str

    @classmethod
    def read(cls, text: str) -> Self:
        """Read the text of `dump`."""
        return cls(**json.loads(text))

    def dump(self) -> str:
        return dump(asdict(self))


def socket_state(check: NodeCheck | None, now: datetime, failed: ShimBypass | None = None) -> SocketState:
    """Return what a check says at the time ``now``: after a while it says that nobody looks any more.

    So does one of far in the future: the clock was set back since, and nobody has looked by the new one. ``failed`` is
    seen without a check; it does not count while the kubelet is not told the shim's socket, by the operator's word.
    """
    found = "stale" if check is None or abs(now - check.at) > STALE else check.kubelet
    return "failed" if failed is not None and found != "bypass" else found


def condition_of(check: NodeCheck, now: datetime) -> ShimCondition:
    """Return the condition that the check's last words give at the time ``now``."""
    state = socket_state(check, now)
    status, reason = _REASONS[state]
    messages: dict[SocketState, str] = {
        "shim": "; ".join(filter(None, ("the kubelet is told the socket of mooring-cri-shim", check.why))),
        "stale": f"mooring-node check last looked at {_rfc3339(check.at)}: systemctl status mooring-node-check.timer",
    }
    return ShimCondition(status, reason, messages.get(state, check.why)[:_LONGEST])


def shim_failed(bypass: ShimBypass) -> ShimCondition:
    """Return the condition of a node whose kubelet is led past a shim that has failed."""
    status, reason = _REASONS["failed"]
    return ShimCondition(status, reason, f"bypassed since {bypass.since}: {bypass.why}"[:_LONGEST])


def not_checked() -> ShimCondition:
    """Return the condition where the check's file is gone and does not come back."""
    status, reason = _REASONS["stale"]
    return ShimCondition(status, reason, "mooring-node check has left nothing in this boot")


def observed_condition(conditions: Iterable[_Condition]) -> ShimCondition | None:
    """Return the node's own condition of this type, None without one."""
    found = (each for each in conditions if each.type == TYPE)
    return next((ShimCondition(each.status, each.reason, each.message) for each in found), None)


def condition_patch(wanted: ShimCondition, before: ShimCondition | None, now: datetime) -> bytes:
    """Return the strategic merge patch of nodes/status: conditions merge by their type, and no other is named."""
    condition = {"type": TYPE, **asdict(wanted), "lastHeartbeatTime": _rfc3339(now)}
    if before is None or before.status != wanted.status:
        condition["lastTransitionTime"] = _rfc3339(now)
    return dump({"status": {"conditions": [condition]}}).encode()


def is_told(wanted: ShimCondition, before: ShimCondition | None) -> bool:
    """Return whether a change is worth an Event: not that all is well when a node is first seen."""
    return wanted.status != ("False" if before is None else before.status) or (
        before is not None and wanted.reason != before.reason
    )


def condition_event(node: str, wanted: ShimCondition, now: datetime) -> dict[str, object]:
    """Return the Event on the node; `kubectl describe node` finds it by the node's name in place of its uid.

    So it is with the kubelet's own (nodeRef in pkg/kubelet/kubelet.go of Kubernetes); Events on nodes are in the
    namespace default.
    """
    at = _rfc3339(now)
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{node}.shim-bypassed.{now.strftime('%Y%m%d%H%M%S')}", "namespace": "default"},
        "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": node, "uid": node},
        "reason": wanted.reason,
        "message": wanted.message,
        "type": "Normal" if wanted.status == "False" else "Warning",
        "source": {"component": _COMPONENT, "host": node},
        "reportingComponent": _COMPONENT,
        "reportingInstance": node,
        "firstTimestamp": at,
        "lastTimestamp": at,
        "count": 1,
    }


def _rfc3339(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")
