"""The pod status that the kubelet stand-in writes."""

from collections.abc import Callable
from typing import Any

import pytest

from devcluster.kubelet.plan.pods import Pod
from devcluster.kubelet.plan.status import Failure, StatusContext, phase, since, status
from devcluster.kubelet.plan.view import Container, Sandbox, State, View

MakePod = Callable[..., Pod]
_NOW = StatusContext(time_s=1000, start_s=900, host_ip="192.0.2.1", conditions={})
_SANDBOX = Sandbox("s0", 0, ready=True, ips=("10.0.0.2", "fd00::2"))
_RUNNING = Container("c0", "main", "s0", 1, State.RUNNING, image="busybox", started_s=950)


def _condition(document: dict[str, Any], kind: str) -> dict[str, Any]:
    return next(one for one in document["conditions"] if one["type"] == kind)


def test_a_running_pod_is_ready_with_its_addresses(make_pod: MakePod) -> None:
    """Phase, conditions, addresses and the container's state agree."""
    document: Any = status(make_pod(), View((_SANDBOX,), (_RUNNING,)), {}, _NOW)
    assert document["phase"] == "Running"
    assert document["podIPs"] == [{"ip": "10.0.0.2"}, {"ip": "fd00::2"}]
    assert document["hostIP"] == "192.0.2.1"
    assert document["startTime"] == "1970-01-01T00:15:00Z"
    (container,) = document["containerStatuses"]
    assert container["state"] == {"running": {"startedAt": "1970-01-01T00:15:50Z"}}
    assert (container["ready"], container["restartCount"]) == (True, 1)
    assert _condition(document, "Ready")["status"] == "True"


def test_a_container_that_cannot_be_created_waits_with_the_runtimes_message(make_pod: MakePod) -> None:
    """The pod stays Pending and not ready; its status has the reason."""
    failures = {"main": Failure("CreateContainerError", "no such device")}
    document: Any = status(make_pod(), View((_SANDBOX,)), failures, _NOW)
    assert document["phase"] == "Pending"
    assert document["containerStatuses"][0]["state"] == {
        "waiting": {"reason": "CreateContainerError", "message": "no such device"}
    }
    assert _condition(document, "Ready") == {
        "type": "Ready",
        "status": "False",
        "reason": "ContainersNotReady",
        "lastProbeTime": None,
        "lastTransitionTime": "1970-01-01T00:16:40Z",
    }


def test_a_condition_keeps_its_time_while_its_status_stays(make_pod: MakePod) -> None:
    """Only a change of status is a transition."""
    before = status(make_pod(), View((_SANDBOX,)), {}, _NOW)
    later = StatusContext(time_s=2000, start_s=900, host_ip="", conditions=since(before))
    document: Any = status(make_pod(), View((_SANDBOX,), (_RUNNING,)), {}, later)
    assert _condition(document, "Initialized")["lastTransitionTime"] == "1970-01-01T00:16:40Z"
    assert _condition(document, "Ready")["lastTransitionTime"] == "1970-01-01T00:33:20Z"


def test_a_pod_on_the_hosts_network_has_the_hosts_address(make_pod: MakePod) -> None:
    """The runtime reports no address for such a pod."""
    view = View((Sandbox("s0", 0, ready=True),), (_RUNNING,))
    document: Any = status(make_pod(hostNetwork=True), view, {}, _NOW)
    assert document["podIP"] == "192.0.2.1"


@pytest.mark.parametrize(("exit_code", "expected"), [(0, "Succeeded"), (137, "Failed")])
def test_a_deleted_pod_ends_in_a_terminal_phase_once_all_is_stopped(
    make_pod: MakePod, exit_code: int, expected: str
) -> None:
    """The phase is not terminal before the sandbox is stopped: a terminal pod's VFs count as free."""
    pod = make_pod(metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})
    ended = Container("c0", "main", "s0", 0, State.EXITED, exit_code=exit_code, started_s=1, finished_s=2)
    assert phase(pod, View((_SANDBOX,), (ended,))) == "Running"
    assert phase(pod, View((Sandbox("s0", 0, ready=False),), (ended,))) == expected
