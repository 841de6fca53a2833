"""What the kubelet stand-in does next, for a pod and what the runtime lists of it."""

from collections.abc import Callable
from typing import Any

import pytest

from devcluster.kubelet.plan.next_steps import (
    DeletePod,
    Launch,
    MakeSandbox,
    Plan,
    RemoveSandbox,
    StopContainer,
    StopSandbox,
    has_finished,
    plan,
)
from devcluster.kubelet.plan.pods import Pod
from devcluster.kubelet.plan.view import Container, Sandbox, State, View

MakePod = Callable[..., Pod]
_READY = Sandbox("s0", 0, ready=True)
_STOPPED = Sandbox("s0", 0, ready=False)
_RUNNING = Container("c0", "main", "s0", 0, State.RUNNING, started_s=1)
_DELETED = {"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 7}


def _exited(status: int, name: str = "main", attempt: int = 0) -> Container:
    return Container(f"c{attempt}", name, "s0", attempt, State.EXITED, exit_code=status, started_s=1, finished_s=100)


def test_a_new_pod_gets_a_sandbox_first(make_pod: MakePod) -> None:
    """The first sandbox of a pod has attempt 0."""
    assert plan(make_pod(), View(), 0) == Plan((MakeSandbox(0),))


def test_a_lost_sandbox_is_replaced_under_the_next_attempt(make_pod: MakePod) -> None:
    """The old one is stopped before the new one is made, and removed once that is ready."""
    assert plan(make_pod(), View((_STOPPED,)), 0) == Plan((MakeSandbox(1, ("s0",)),))
    new = Sandbox("s1", 1, ready=True)
    steps = plan(make_pod(), View((_STOPPED, new)), 0).steps
    assert steps == (RemoveSandbox("s0"), Launch("main", "s1", 0))


def test_all_containers_are_launched_at_once(make_pod: MakePod) -> None:
    """App containers do not wait for one another."""
    pod = make_pod(containers=[{"name": "a"}, {"name": "b"}])
    assert plan(pod, View((_READY,)), 0).steps == (Launch("a", "s0", 0), Launch("b", "s0", 0))


def test_a_container_that_was_only_created_is_launched_again(make_pod: MakePod) -> None:
    """Its creator was interrupted before it started it; its name is taken."""
    created = Container("c0", "main", "s0", 0, State.CREATED)
    assert plan(make_pod(), View((_READY,), (created,)), 0).steps == (Launch("main", "s0", 1),)


def test_init_containers_come_in_order_and_sidecars_need_only_run(make_pod: MakePod) -> None:
    """A sidecar that runs lets the next go; an ordinary init container has to end with 0."""
    pod = make_pod(initContainers=[{"name": "side", "restartPolicy": "Always"}, {"name": "init"}])
    side = Container("c1", "side", "s0", 0, State.RUNNING, started_s=1)
    assert plan(pod, View((_READY,)), 0).steps == (Launch("side", "s0", 0),)
    assert plan(pod, View((_READY,), (side,)), 0).steps == (Launch("init", "s0", 0),)
    ended = View((_READY,), (side, _exited(0, "init")))
    assert plan(pod, ended, 0).steps == (Launch("main", "s0", 0),)


def test_a_container_is_restarted_after_a_growing_pause(make_pod: MakePod) -> None:
    """10 s, 20 s, 40 s after its end and never more than 300 s; until then the plan holds the time of the next try."""
    first = View((_READY,), (_exited(1),))
    assert plan(make_pod(), first, 109) == Plan(wake_s=110)
    assert plan(make_pod(), first, 110) == Plan((Launch("main", "s0", 1),))
    assert plan(make_pod(), View((_READY,), (_exited(1, attempt=2),)), 109) == Plan(wake_s=140)
    assert plan(make_pod(), View((_READY,), (_exited(1, attempt=20),)), 109) == Plan(wake_s=400)


@pytest.mark.parametrize(
    ("policy", "status", "over"),
    [("Never", 1, True), ("Never", 0, True), ("OnFailure", 0, True), ("OnFailure", 1, False), ("Always", 0, False)],
)
def test_the_restart_policy_says_when_a_pod_is_over(make_pod: MakePod, policy: str, status: int, over: bool) -> None:
    """A pod that is over loses its sandbox's network; the others wait for their restart."""
    pod, view = make_pod(restartPolicy=policy), View((_READY,), (_exited(status),))
    assert has_finished(pod, view) is over
    assert (plan(pod, view, 0).steps == (StopSandbox("s0"),)) is over


def test_a_pod_ends_when_an_init_container_fails_for_good(make_pod: MakePod) -> None:
    """With restartPolicy Never; otherwise the init container is tried again."""
    view = View((_READY,), (_exited(1, "init"),))
    never, always = (
        make_pod(restartPolicy=policy, initContainers=[{"name": "init"}]) for policy in ("Never", "Always")
    )
    assert plan(never, view, 0).steps == (StopSandbox("s0"),)
    assert plan(always, view, 200).steps == (Launch("init", "s0", 1),)


def test_a_terminal_pod_is_never_started_again(make_pod: MakePod) -> None:
    """The pod's phase counts even if the runtime has no trace of it any more."""
    assert plan(make_pod(status={"phase": "Failed"}), View(), 0) == Plan()


def test_a_deleted_pod_goes_step_by_step(make_pod: MakePod) -> None:
    """Containers with the deletion's grace, StopPodSandbox, RemovePodSandbox, and only then the API object."""
    pod = make_pod(metadata=_DELETED)
    assert plan(pod, View((_READY,), (_RUNNING,)), 0).steps == (StopContainer("c0", "main", 7),)
    assert plan(pod, View((_READY,), (_exited(137),)), 0).steps == (StopSandbox("s0"),)
    assert plan(pod, View((_STOPPED,), (_exited(137),)), 0).steps == (RemoveSandbox("s0"),)
    assert plan(pod, View(), 0).steps == (DeletePod(),)


def test_a_pod_the_api_no_longer_has_is_stopped_and_removed() -> None:
    """The API server has no such pod: the work is done once the runtime does not have it either."""
    view: Any = View((_READY,), (_RUNNING,))
    assert plan(None, view, 0).steps == (StopContainer("c0", "main", 1),)
    assert plan(None, View((_STOPPED,)), 0).steps == (RemoveSandbox("s0"),)
    assert plan(None, View(), 0) == Plan()
