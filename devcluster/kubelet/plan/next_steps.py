"""Decide what to do next for one pod, from the pod and the runtime's view of it. Pure.

`plan` is called again after every round of steps and after every change: it holds no state, so a kubelet that was
killed continues where it stopped. The order is the real kubelet's: one sandbox, init containers one after the other,
then all containers. At the end come the containers, StopPodSandbox, and once more StopPodSandbox with RemovePodSandbox.
Last is the pod's own removal from the API server.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from devcluster.kubelet.plan.pods import ContainerSpec, Pod
from devcluster.kubelet.plan.view import Container, Sandbox, State, View

# The real kubelet's back-off between restarts of a container, in seconds.
_RESTART_FIRST_S = 10.0
_RESTART_MOST_S = 300.0
# The grace period in seconds of a pod that is gone from the API server, as with a forced deletion.
_ORPHAN_GRACE_S = 1


@dataclass(frozen=True, slots=True)
class MakeSandbox:
    """Stop the sandboxes that it replaces, then run a new one."""

    attempt: int
    replaces: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Launch:
    """Create and start a container."""

    container: str
    sandbox_id: str
    attempt: int


@dataclass(frozen=True, slots=True)
class StopContainer:
    container_id: str
    name: str
    grace_s: int


@dataclass(frozen=True, slots=True)
class StopSandbox:
    sandbox_id: str


@dataclass(frozen=True, slots=True)
class RemoveSandbox:
    """Stop a sandbox once more, in case that was missed, and remove it."""

    sandbox_id: str


@dataclass(frozen=True, slots=True)
class DeletePod:
    """Remove the pod from the API server: nothing of it is left here."""


Step = MakeSandbox | Launch | StopContainer | StopSandbox | RemoveSandbox | DeletePod


@dataclass(frozen=True, slots=True)
class Plan:
    """Steps to take now, all of them, in any order; and when to plan again even if nothing changes (None: never)."""

    steps: tuple[Step, ...] = ()
    wake_s: float | None = None


def plan(pod: Pod | None, view: View, now_s: float) -> Plan:
    """Return what to do; ``pod`` is None if the API server does not have it (any more)."""
    if pod is None or pod.is_deleted:
        return Plan(_teardown(pod, view))
    if has_finished(pod, view):
        return Plan(tuple(StopSandbox(sandbox.id) for sandbox in view.sandboxes if sandbox.ready))
    sandbox = view.ready_sandbox()
    if sandbox is None:
        newest = view.newest_sandbox()
        attempt = 0 if newest is None else newest.attempt + 1
        return Plan((MakeSandbox(attempt, tuple(sandbox.id for sandbox in view.sandboxes)),))
    old = tuple(RemoveSandbox(other.id) for other in view.sandboxes if other is not sandbox)
    started = _containers(pod, view, sandbox, now_s)
    return Plan(old + started.steps, started.wake_s)


def has_finished(pod: Pod, view: View) -> bool:
    """Return whether the pod's work is over: by its phase, or all containers ended for good, or an init failed."""
    if pod.is_terminal:
        return True
    policy = pod.spec.restart_policy
    inits = (view.latest(init.name) for init in pod.spec.init_containers if not init.is_sidecar)
    if policy == "Never" and any(init and init.state is State.EXITED and init.exit_code for init in inits):
        return True
    latest = [view.latest(container.name) for container in pod.spec.containers]
    return bool(latest) and all(container and _is_over(policy, container) for container in latest)


def succeeded(pod: Pod, view: View) -> bool:
    """Return whether a finished pod succeeded: exit status 0 of every container."""
    every = (*pod.spec.init_containers, *pod.spec.containers)
    ends = [view.latest(container.name) for container in every if not container.is_sidecar]
    return all(end is not None and end.state is State.EXITED and end.exit_code == 0 for end in ends)


def _teardown(pod: Pod | None, view: View) -> tuple[Step, ...]:
    grace_s = _ORPHAN_GRACE_S if pod is None else pod.grace_s
    running = [container for container in view.containers if container.state is State.RUNNING]
    if running:
        return tuple(StopContainer(container.id, container.name, grace_s) for container in running)
    if ready := [sandbox for sandbox in view.sandboxes if sandbox.ready]:
        return tuple(StopSandbox(sandbox.id) for sandbox in ready)
    if view.sandboxes:
        return tuple(RemoveSandbox(sandbox.id) for sandbox in view.sandboxes)
    return () if pod is None else (DeletePod(),)


def _containers(pod: Pod, view: View, sandbox: Sandbox, now_s: float) -> Plan:
    waiting = [_init(pod, init, view, sandbox, now_s) for init in _unfinished_inits(pod, view, sandbox)]
    if waiting:
        return waiting[0]
    sidecars = [init for init in pod.spec.init_containers if init.is_sidecar]
    plans = [_container("Always", sidecar, view, sandbox, now_s) for sidecar in sidecars]
    plans += [_container(pod.spec.restart_policy, spec, view, sandbox, now_s) for spec in pod.spec.containers]
    wakes = [one.wake_s for one in plans if one.wake_s is not None]
    return Plan(tuple(step for one in plans for step in one.steps), min(wakes, default=None))


def _unfinished_inits(pod: Pod, view: View, sandbox: Sandbox) -> Iterator[ContainerSpec]:
    for init in pod.spec.init_containers:
        latest = view.latest(init.name, sandbox)
        if latest is None:
            yield init
        elif init.is_sidecar:
            # Once it has started, the next may; if it ends, it is restarted beside the others.
            if latest.state is State.CREATED:
                yield init
        elif latest.state is not State.EXITED or latest.exit_code:
            yield init


def _init(pod: Pod, init: ContainerSpec, view: View, sandbox: Sandbox, now_s: float) -> Plan:
    policy = "Never" if pod.spec.restart_policy == "Never" else "OnFailure"
    return _container(policy, init, view, sandbox, now_s)


def _container(policy: str, spec: ContainerSpec, view: View, sandbox: Sandbox, now_s: float) -> Plan:
    latest = view.latest(spec.name, sandbox)
    launch = Plan((Launch(spec.name, sandbox.id, view.next_attempt(spec.name)),))
    if latest is None or latest.state is State.CREATED:
        # Created and not started: the creation was interrupted.
        return launch
    if latest.state is not State.EXITED or _is_over(policy, latest):
        return Plan()
    restart_s = latest.finished_s + min(_RESTART_FIRST_S * 2**latest.attempt, _RESTART_MOST_S)
    return launch if now_s >= restart_s else Plan(wake_s=restart_s)


def _is_over(policy: str, container: Container) -> bool:
    if container.state is not State.EXITED or policy == "Always":
        return False
    return policy == "Never" or container.exit_code == 0
