"""Format the node condition `ShimBypassed`, which reports that the kubelet does not use the CRI shim, and its Event.

The condition is derived from two files on the host: `mooring-node check` writes one (`mooring.records.node_check`), and
mooring-shim-bypass the other, when it bypasses a shim that has failed (`mooring.records.shim_bypass`). Without both
files Mooring is not installed on the host, and there is no condition.
"""

from datetime import datetime, timedelta
from typing import Literal

from advertiser.formats.node_condition import LONGEST, ConditionState, rfc3339
from mooring.records.node_check import NodeCheck
from mooring.records.shim_bypass import ShimBypass

TYPE = "mooring.dev/ShimBypassed"
Status = Literal["True", "False", "Unknown"]
# The states of the metric. ``failed``: the shim has failed and is bypassed; ``stale``: the last check is too old; the
# others say which socket the kubelet uses.
SocketState = Literal["shim", "runtime", "bypass", "failed", "unknown", "stale"]
# The check runs every two minutes; some runs may fail or wait before the check counts as stale.
STALE = timedelta(minutes=15)
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


def socket_state(check: NodeCheck | None, now: datetime, failed: ShimBypass | None = None) -> SocketState:
    """Return the state at the time ``now``; an old check is stale.

    A check from far in the future is stale, too, because the clock was set back. ``failed`` is the bypass of a failed
    shim; it takes precedence, except while the operator has turned the bypass on.
    """
    state = "stale" if check is None or abs(now - check.at) > STALE else check.kubelet
    return "failed" if failed is not None and state != "bypass" else state


def condition_of(check: NodeCheck, now: datetime) -> ConditionState:
    """Return the condition at the time ``now``, from the last check."""
    state = socket_state(check, now)
    status, reason = _REASONS[state]
    messages: dict[SocketState, str] = {
        "shim": "; ".join(filter(None, ("the kubelet is configured with the socket of mooring-cri-shim", check.why))),
        "stale": f"mooring-node check last ran at {rfc3339(check.at)}: see systemctl status mooring-node-check.timer",
    }
    return ConditionState(status, reason, messages.get(state, check.why)[:LONGEST])


def shim_failed(bypass: ShimBypass) -> ConditionState:
    """Return the condition of a node whose failed shim is bypassed."""
    status, reason = _REASONS["failed"]
    return ConditionState(status, reason, f"bypassed since {bypass.since}: {bypass.why}"[:LONGEST])


def not_checked() -> ConditionState:
    """Return the condition of a node without a file of `mooring-node check`."""
    status, reason = _REASONS["stale"]
    return ConditionState(status, reason, "mooring-node check has not reported since this node booted")


def is_told(wanted: ConditionState, before: ConditionState | None) -> bool:
    """Return whether to write an Event for a change; the first condition of a node gets one only if it is bad."""
    return wanted.status != ("False" if before is None else before.status) or (
        before is not None and wanted.reason != before.reason
    )


def condition_event(node: str, wanted: ConditionState, now: datetime) -> dict[str, object]:
    """Return the Event on the node.

    Its involvedObject has the node's name as uid, as in the kubelet's own Events (nodeRef in pkg/kubelet/kubelet.go of
    Kubernetes): `kubectl describe node` finds it by that. Events on nodes are in the namespace default.
    """
    at = rfc3339(now)
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
