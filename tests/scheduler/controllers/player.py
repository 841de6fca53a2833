"""Play on a real API server what a controller does, and what the kubelets of its pods do."""

import asyncio
import copy
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

import msgspec

from mooring import names
from mooring.kube.client import STRATEGIC_PATCH
from mooring.kube.failures import Conflict, NotFound
from tests.scheduler.controllers.whole_starts import WholeStarts, has_ended, has_node, is_deleted, is_waiting
from tests.scheduler.server.cluster import Cluster
from tests.support.polling import eventually

# Against hanging: the longest waits take ten seconds on two busy cores.
_LIMIT_S = 60.0
WHOLE_NODE = "[{},{}]"
# The label of the nodes by which a job is admitted to two of them.
POOL = "example.com/pool"
NODES = ("n1", "n2", "n3", "n4")
_API = {"Pod": "/api/v1", "Job": "/apis/batch/v1", "StatefulSet": "/apis/apps/v1"}
_RUNNING = {"type": "Ready", "status": "True"}


def template(group: dict[str, Any], labels: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    """Return a pod template whose pods take a whole node and are members of ``group``."""
    annotations = {names.REQUEST: WHOLE_NODE, names.GROUP: msgspec.json.encode(group).decode()}
    containers = [{"name": "rank", "image": "registry.example/train:1"}]
    return {
        "metadata": {"annotations": annotations, "labels": labels or {}},
        "spec": {"schedulerName": "mooring", "containers": containers} | spec,
    }


def controller(api: str, kind: str, name: str) -> dict[str, Any]:
    """Return a reference to a controller whose kind the API server does not serve."""
    return {"apiVersion": api, "kind": kind, "name": name, "uid": f"uid-of-{name}", "controller": True}


def role(pod: Any) -> str:
    """Return what a script calls a pod: its name, without the random end of a Job's pod."""
    metadata = pod["metadata"]
    by_job = any(owner["kind"] == "Job" for owner in metadata.get("ownerReferences", []))
    return str(metadata["generateName"].rstrip("-") if by_job else metadata["name"])


class Stage:
    """A namespace whose pods a script creates and deletes as a controller does; their kubelets act by themselves."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.cluster = cluster
        self.namespace = namespace
        self.pods: dict[str, Any] = {}
        self._groups = WholeStarts(lambda _: "", 0)
        # Pods that take their time to end, by name, and those whose containers have started, by uid.
        self._slow: set[str] = set()
        self._started: set[str] = set()
        self._changed = asyncio.Event()

    # What a controller does.

    def path(self, kind: str, name: str = "") -> str:
        path = f"{_API[kind]}/namespaces/{self.namespace}/{kind.lower()}s"
        return f"{path}/{name}" if name else path

    async def create(self, kind: str, body: Any) -> Any:
        return await self.cluster.call("POST", self.path(kind), body)

    async def create_pods(self, bodies: Iterable[Any]) -> None:
        for body in bodies:
            await self.create("Pod", body)

    async def patch(self, kind: str, name: str, *, status: Any = None, **fields: Any) -> None:
        path, body = self.path(kind, name), fields
        if status is not None:
            path, body = f"{path}/status", {"status": status}
        await self.cluster.patch(path, **body)

    async def delete(self, kind: str, *objects: str, propagation: str = "Background") -> None:
        """Delete objects; pods that live by their roles, and until that has been seen."""
        options = {"propagationPolicy": propagation}
        uids = [self.live(one)["metadata"]["uid"] for one in objects] if kind == "Pod" else []
        for name in objects:
            full = self.live(name)["metadata"]["name"] if kind == "Pod" else name
            await self.cluster.call("DELETE", self.path(kind, full), options)
        await self.until(lambda: not any(self._is_live(uid) for uid in uids), f"deleted: {', '.join(objects)}")

    async def delete_ended(self) -> None:
        """Delete all pods that have ended, and wait until they are gone."""
        ended = [name for name, pod in self.pods.items() if has_ended(pod)]
        for name in ended:
            await self.cluster.call("DELETE", self.path("Pod", name))
        await self.until(lambda: not self.pods.keys() & set(ended), f"gone: {', '.join(ended)}")

    async def bind(self, name: str, node: str) -> None:
        """Bind a pod as kube-scheduler does."""
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        body = {"metadata": {"name": name}, "target": target}
        await self.cluster.call("POST", f"{self.path('Pod', name)}/binding", body)

    # What a kubelet does.

    async def end(self, *roles: str, phase: str) -> None:
        """Let the containers of pods end, until that has been seen; ``phase`` is Succeeded or Failed."""
        pods = [self.live(one) for one in roles]
        for pod in pods:
            await self._report_end(pod, phase)
        uids = [pod["metadata"]["uid"] for pod in pods]
        await self.until(lambda: not any(self._is_live(uid) for uid in uids), f"ended: {', '.join(roles)}")

    async def restart_container(self, role: str) -> None:
        pod = self.live(role)
        status = pod["status"]["containerStatuses"][0] | {"restartCount": 1}
        await self.patch("Pod", pod["metadata"]["name"], status={"containerStatuses": [status]})

    @asynccontextmanager
    async def slow_to_end(self, *roles: str) -> AsyncIterator[None]:
        """Let these pods run on in their grace period."""
        slow = {self.live(one)["metadata"]["name"] for one in roles}
        self._slow |= slow
        yield
        self._slow -= slow
        for name in slow & self.pods.keys():
            await self._run(self.pods[name])

    async def _report_end(self, pod: Any, phase: str) -> None:
        code = 0 if phase == "Succeeded" else 1
        ended = {"ready": False, "state": {"terminated": {"exitCode": code}}}
        status = pod["status"]["containerStatuses"][0] | ended
        await self.patch("Pod", pod["metadata"]["name"], status={"phase": phase, "containerStatuses": [status]})

    async def _run(self, pod: Any) -> None:
        metadata = pod["metadata"]
        name = metadata["name"]
        try:
            if is_deleted(pod):
                if name not in self._slow and metadata["deletionGracePeriodSeconds"]:
                    # A kubelet reports the end before it deletes the pod.
                    if pod["status"]["phase"] == "Running":
                        await self._report_end(pod, "Failed")
                    await self._delete_at_once(name, metadata["uid"])
            elif metadata["uid"] not in self._started:
                self._started.add(metadata["uid"])
                started = {"name": "rank", "image": "i", "imageID": "i", "ready": True, "restartCount": 0}
                started["state"] = {"running": {}}
                running = {"phase": "Running", "conditions": [_RUNNING], "containerStatuses": [started]}
                body = msgspec.json.encode({"status": running})
                await self.cluster.client.request("PATCH", f"{self.path('Pod', name)}/status", body, STRATEGIC_PATCH)
        except (NotFound, Conflict):
            # It is gone already, or another pod has its name.
            return

    async def _delete_at_once(self, name: str, uid: str) -> None:
        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": uid}}
        await self.cluster.call("DELETE", self.path("Pod", name), options)

    # What happens to the four nodes, each with the VFs of one rank.

    @staticmethod
    def nodes_of(pool: str) -> tuple[str, ...]:
        return NODES[:2] if pool == "a" else NODES[2:]

    @asynccontextmanager
    async def one_node_taken(self) -> AsyncIterator[None]:
        """Have a node's VFs taken by another pod."""
        await self.cluster.add_pod("other", WHOLE_NODE)
        await self.cluster.bound("other")
        yield
        await self.cluster.delete("other")

    @asynccontextmanager
    async def start_whole(self, *roles: str, fit: str = "3 of 4", others: Sequence[str] = ()) -> AsyncIterator[None]:
        """Have a node taken while these pods are made: they wait, and run with the others once it is free."""
        async with self.one_node_taken():
            yield
            await self.waits(*roles, message=f"{fit} members fit")
        await self.runs(*roles, *others)

    async def lose_node(self, name: str) -> None:
        """Have a node be unreachable, as its lease has expired."""
        taint = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}
        await self.cluster.patch(f"/api/v1/nodes/{name}", spec={"taints": [taint]})
        status = {"conditions": [{"type": "Ready", "status": "Unknown"}]}
        await self.cluster.patch(f"/api/v1/nodes/{name}/status", status=status)

    async def is_empty(self) -> bool:
        """Delete all that a script has made; return whether no pod was left."""
        for kind in ("Job", "StatefulSet", "Pod"):
            await self.cluster.client.request("DELETE", self.path(kind), params={"gracePeriodSeconds": "0"})
        left = (await self.cluster.call("GET", self.path("Pod")))["items"]
        for pod in left:
            with suppress(NotFound):
                await self.patch("Pod", pod["metadata"]["name"], metadata={"finalizers": None})
        return not left

    async def leaves_all_nodes_free(self) -> None:
        """See that no pod lives and no VF of any node is reserved: other pods get all of them."""
        await self.gone()
        others = [f"other-{node}" for node in NODES]
        for name in others:
            await self.cluster.add_pod(name, WHOLE_NODE)
        await self.cluster.bound(*others)
        for name in others:
            await self.cluster.delete(name)

    # What can be seen.

    def watch_groups(self, group_of: Callable[[Any], str], minimum: int) -> WholeStarts:
        """Check from now on that groups start whole."""
        self._groups = WholeStarts(group_of, minimum)
        return self._groups

    @asynccontextmanager
    async def following(self) -> AsyncIterator[None]:
        """Follow the namespace's pods, from now on: each change is one event."""
        pods = await self.cluster.call("GET", self.path("Pod"))
        follow = asyncio.create_task(self._follow(pods["metadata"]["resourceVersion"]))
        try:
            yield
        finally:
            follow.cancel()
            await asyncio.gather(follow, return_exceptions=True)
        assert follow.cancelled(), follow.exception()

    async def _follow(self, version: str) -> None:
        since = {"watch": "1", "resourceVersion": version}
        async with (
            asyncio.TaskGroup() as kubelets,
            self.cluster.client.stream(self.path("Pod"), since, silence_s=3600) as lines,
        ):
            async for some in lines:
                for line in some:
                    event = msgspec.json.decode(line)
                    pod = event["object"]
                    self._take_in(event["type"], pod)
                    if event["type"] != "DELETED" and has_node(pod):
                        kubelets.create_task(self._run(pod))
                self._changed.set()

    def _take_in(self, kind: str, pod: Any) -> None:
        name = pod["metadata"]["name"]
        before = copy.copy(self.pods)
        if kind == "DELETED":
            del self.pods[name]
        else:
            self.pods[name] = pod
        self._groups.pods_changed(before, self.pods, name)

    async def until(self, reached: Callable[[], object], what: str) -> None:
        """Wait until ``reached`` answers truly; no start may be wrong until then."""
        try:
            async with asyncio.timeout(_LIMIT_S):
                while not reached():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise AssertionError(f"not reached: {what}; the pods: {self._states()}") from None
        assert not self._groups.broken, self._groups.broken

    def live(self, wanted: str) -> Any:
        """Return the pod of this role that has not ended and is not deleted."""
        (pod,) = [pod for pod in self._live() if role(pod) == wanted]
        return pod

    def _live(self) -> list[Any]:
        return [pod for pod in self.pods.values() if not (is_deleted(pod) or has_ended(pod))]

    def _is_live(self, uid: str) -> bool:
        return any(pod["metadata"]["uid"] == uid for pod in self._live())

    def uids(self) -> set[str]:
        return {pod["metadata"]["uid"] for pod in self.pods.values()}

    async def runs(self, *roles: str) -> None:
        """Wait until exactly these pods live, and run."""
        wanted = [(one, "Running") for one in sorted(roles)]

        def all_run() -> bool:
            return sorted((role(pod), pod["status"]["phase"]) for pod in self._live()) == wanted

        await self.until(all_run, f"these run: {', '.join(roles)}")
        assert not self._groups.half_started(self.pods), self._states()

    async def lives(self, *roles: str) -> None:
        """Wait until these pods are there, among others."""
        await self.until(lambda: set(roles) <= set(map(role, self._live())), f"these live: {', '.join(roles)}")

    async def gone(self) -> None:
        """Wait until no pod is left but those that have ended."""
        await self.until(
            lambda: all(has_ended(pod) and not is_deleted(pod) for pod in self.pods.values()), "none lives"
        )

    async def waits(self, *roles: str, message: str) -> None:
        """Wait until exactly these pods are unschedulable, for this reason."""

        def all_wait() -> bool:
            waiting = [pod for pod in self._live() if is_waiting(pod)]
            return sorted(map(role, waiting)) == sorted(roles) and all(message in _reason(pod) for pod in waiting)

        await self.until(all_wait, f"{', '.join(roles)} wait: {message}")
        assert not self._groups.half_started(self.pods), self._states()

    async def absent(self, kind: str, *objects: str) -> None:
        """Wait until these objects are gone."""

        async def is_absent(name: str) -> bool:
            try:
                await self.cluster.call("GET", self.path(kind, name))
            except NotFound:
                return True
            return False

        for name in objects:
            await eventually(partial(is_absent, name))

    async def job_is(self, condition: str, job: str) -> None:
        """Wait until a Job has a condition: Complete, Failed or Suspended."""

        async def found() -> bool:
            conditions = (await self.cluster.call("GET", self.path("Job", job)))["status"].get("conditions", [])
            return any((one["type"], one["status"]) == (condition, "True") for one in conditions)

        await eventually(found)

    def _states(self) -> dict[str, Any]:
        return {
            name: (pod["spec"].get("nodeName"), pod["status"]["phase"], is_deleted(pod), _reason(pod))
            for name, pod in self.pods.items()
        }


def _reason(pod: Any) -> str:
    conditions = pod["status"].get("conditions", [])
    return next((one.get("message", "") for one in conditions if one["type"] == "PodScheduled"), "")
