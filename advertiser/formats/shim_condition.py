"""The node's condition that its kubelet does not speak to the CRI shim, and the Event on the node when that changes.

Both come from a file of `mooring-node check` on the host (`mooring.records.node_check`), and from one of
mooring-shim-bypass, which leads the kubelet past a shim that has failed (`mooring.records.shim_bypass`). Without either
file there is no condition: Mooring's part of the node is not installed.
"""

from datetime import datetime, timedelta
from typing import Literal

from advertiser.formats.node_condition import LONGEST, ConditionState, rfc3339
from mooring.records.node_check import NodeCheck
from mooring.records.shim_bypass import ShimBypass

TYPE = "mooring.dev/ShimBypassed"
Status = Literal["True", "False", "Unknown"]
# Of the metric: which socket the kubelet uses, that it is led past a failed shim, and that the last check is old.
SocketState = Literal["shim", "runtime", "bypass", "failed", "unknown", "stale"]
# The check runs every two minutes: some may fail or wait before this is reported.
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
    """Return the state that a check shows at the time ``now``; an old check is stale.

    A check from far in the future is stale too: the clock was set back since. ``failed`` counts without a check, but
    not while the operator has turned the bypass on.
    """
    state = "stale" if check is None or abs(now - check.at) > STALE else check.kubelet
    return "failed" if failed is not None and state != "bypass" else state


def condition_of(check: NodeCheck, now: datetime) -> ConditionState:
    """Return the condition by the last check at the time ``now``."""
    state = socket_state(check, now)
    status, reason = _REASONS[state]
    messages: dict[SocketState, str] = {
        "shim": "; ".join(filter(None, ("the kubelet is told the socket of mooring-cri-shim", check.why))),
        "stale": f"mooring-node check last looked at {rfc3339(check.at)}: systemctl status mooring-node-check.timer",
    }
    return ConditionState(status, reason, messages.get(state, check.why)[:LONGEST])


def shim_failed(bypass: ShimBypass) -> ConditionState:
    """Return the condition of a node whose kubelet is led past a shim that has failed."""
    status, reason = _REASONS["failed"]
    return ConditionState(status, reason, f"bypassed since {bypass.since}: {bypass.why}"[:LONGEST])


def not_checked() -> ConditionState:
    """Return the condition of a node whose check has left no file for a while."""
    status, reason = _REASONS["stale"]
    return ConditionState(status, reason, "mooring-node check has left nothing in this boot")


def is_told(wanted: ConditionState, before: ConditionState | None) -> bool:
    """Return whether a change gets an Event: the first condition of a node gets one only if something is wrong."""
    return wanted.status != ("False" if before is None else before.status) or (
        before is not None and wanted.reason != before.reason
    )


def condition_event(node: str, wanted: ConditionState, now: datetime) -> dict[str, object]:
    """Return the Event on the node; `kubectl describe node` finds it by the node's name in place of its uid.

    The kubelet's own Events have the name there too (nodeRef in pkg/kubelet/kubelet.go of Kubernetes). Events on nodes
    are in the namespace default.
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
