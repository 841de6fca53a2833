"""What `mooring-node check` has found as the node's condition, and which changes are worth an Event."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from advertiser.formats.cluster_facts import NodeCondition
from advertiser.formats.node_condition import ConditionState, condition_patch, observed_condition
from advertiser.formats.shim_condition import (
    STALE,
    TYPE,
    condition_event,
    condition_of,
    is_told,
    not_checked,
    shim_failed,
    socket_state,
)
from mooring.records.node_check import KubeletSocket, NodeCheck
from mooring.records.shim_bypass import ShimBypass

NOW = datetime(2026, 11, 22, 14, tzinfo=UTC)
GOOD = condition_of(NodeCheck(NOW, "shim"), NOW)
BAD = condition_of(NodeCheck(NOW, "runtime", "config.yaml: …"), NOW)


@pytest.mark.parametrize(
    ("kubelet", "status", "reason"),
    [
        ("shim", "False", "KubeletUsesShim"),
        ("runtime", "True", "KubeletPastShim"),
        ("bypass", "True", "BypassOn"),
        ("unknown", "Unknown", "NotKnown"),
    ],
)
def test_what_the_kubelet_is_told_decides(kubelet: KubeletSocket, status: str, reason: str) -> None:
    """False is good, as of the kubelet's own conditions; the message is the check's own."""
    found = condition_of(NodeCheck(NOW, kubelet, "why"), NOW)
    assert (found.status, found.reason) == (status, reason)
    assert found.message == (
        "why" if kubelet != "shim" else "the kubelet is configured with the socket of mooring-cri-shim; why"
    )
    assert GOOD.message == "the kubelet is configured with the socket of mooring-cri-shim"


def test_a_check_that_is_long_ago_says_nothing_any_more() -> None:
    """Whatever it said; the message does not change while time passes, so that it is written once."""
    old = NodeCheck(NOW - STALE, "shim")
    assert socket_state(old, NOW) == "shim"
    after = [condition_of(old, NOW + timedelta(seconds=seconds)) for seconds in (1, 1000)]
    assert after[0] == after[1]
    assert (after[0].status, after[0].reason) == ("Unknown", "NotChecked")
    assert "last ran at 2026-11-22T13:45:00Z" in after[0].message


def test_a_check_of_a_time_to_come_says_nothing_either() -> None:
    """A clock that was ahead and set back: else the last words of a timer that has stopped would count for as long."""
    assert socket_state(NodeCheck(NOW + STALE, "shim"), NOW) == "shim"
    assert socket_state(NodeCheck(NOW + 2 * STALE, "shim"), NOW) == "stale"


def test_a_failed_shim_counts_more_than_what_the_kubelet_is_told_but_not_than_the_operator() -> None:
    """Also where nothing has looked: what breaks the shim may break the check too."""
    failed = ShimBypass("2026-11-22T14:00:00Z", "mooring-cri-shim has not served for 15 s")
    for check in (NodeCheck(NOW, "shim"), NodeCheck(NOW - 2 * STALE, "bypass"), None):
        assert socket_state(check, NOW, failed) == "failed"
    assert socket_state(NodeCheck(NOW, "bypass"), NOW, failed) == "bypass"
    message = "bypassed since 2026-11-22T14:00:00Z: mooring-cri-shim has not served for 15 s"
    assert shim_failed(failed) == ConditionState("True", "ShimFailed", message)


def test_the_patch_names_this_condition_alone_and_moves_its_time_only_with_the_status() -> None:
    """Conditions merge by type: no other is touched."""
    first, same = (
        condition_patch(TYPE, wanted, before, NOW) for wanted, before in ((BAD, GOOD), (replace(BAD, message="m"), BAD))
    )
    (condition,) = json.loads(first)["status"]["conditions"]
    assert (condition["type"], condition["lastTransitionTime"]) == (TYPE, "2026-11-22T14:00:00Z")
    assert "lastTransitionTime" not in json.loads(same)["status"]["conditions"][0]


@pytest.mark.parametrize(
    ("wanted", "before", "told"),
    [
        (GOOD, None, False),
        (BAD, None, True),
        (BAD, GOOD, True),
        (GOOD, BAD, True),
        (not_checked(), GOOD, True),
        (replace(BAD, message="another file"), BAD, False),
        (replace(BAD, reason="BypassOn"), BAD, True),
    ],
)
def test_an_event_is_for_another_status_or_reason(
    wanted: ConditionState, before: ConditionState | None, told: bool
) -> None:
    """Not for a node that is seen for the first time and is well."""
    assert is_told(wanted, before) == told


def test_the_event_is_one_that_describe_node_shows() -> None:
    """By the node's name in place of its uid, as the kubelet's own; its end is no warning."""
    event = condition_event("n1", BAD, NOW)
    assert event["involvedObject"] == {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "n1"}
    assert (event["type"], event["reason"]) == ("Warning", "KubeletPastShim")
    assert condition_event("n1", GOOD, NOW)["type"] == "Normal"


def test_the_nodes_own_is_found_among_others() -> None:
    """By its type; what is written is found as it was wanted."""
    ready = NodeCondition("Ready", "True", "KubeletReady", "")
    assert observed_condition(TYPE, [ready]) is None
    assert observed_condition(TYPE, [ready, NodeCondition(TYPE, BAD.status, BAD.reason, BAD.message)]) == BAD
    assert ConditionState.read(BAD.dump()) == BAD
