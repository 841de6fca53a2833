"""The look for containers without their devices, against a runtime that answers over a real socket."""

import asyncio
import json
import os
import stat
import tracemalloc
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pytest
from cri_api.v1 import api_pb2 as cri
from cri_api.v1 import api_pb2_grpc as cri_grpc

from cri_shim.devices.device_check import DeviceCheck, KubeletCalls
from cri_shim.devices.device_nodes import Roots
from cri_shim.metrics import Metrics
from cri_shim.records import Records
from cri_shim.runtime import Runtime
from mooring.records.without_devices import NAME, read_without_devices
from tests.support.polling import until

STATUS = "/runtime.v1.RuntimeService/Status"
RUNNING, EXITED = cri.CONTAINER_RUNNING, cri.CONTAINER_EXITED
_MOST_BYTES = 32 << 20


@dataclass(slots=True)
class Container:
    """A container of the runtime: the minors of its uverbs devices, None for a spec that cannot be read."""

    name: str
    sandbox: str
    minors: tuple[int, ...] | None = ()
    state: int = RUNNING


@dataclass(slots=True)
class FakeRuntime(cri_grpc.RuntimeServiceServicer):  # type: ignore[misc]
    """Answers the four calls; `stopped` has (id, seconds granted)."""

    pods: dict[str, str] = field(default_factory=dict)
    containers: dict[str, Container] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    stopped: list[tuple[str, int]] = field(default_factory=list)
    stops: bool = True

    async def ListPodSandbox(self, _request: Any, _context: Any) -> Any:  # noqa: N802 - CRI's name
        items = [cri.PodSandbox(id=id_, metadata=cri.PodSandboxMetadata(uid=uid)) for id_, uid in self.pods.items()]
        return cri.ListPodSandboxResponse(items=items)

    async def ListContainers(self, request: Any, _context: Any) -> Any:  # noqa: N802 - CRI's name
        found = [
            cri.Container(
                id=id_,
                pod_sandbox_id=each.sandbox,
                metadata=cri.ContainerMetadata(name=each.name),
                annotations={"io.kubernetes.pod.terminationGracePeriod": "7"},
            )
            for id_, each in self.containers.items()
            if each.state == request.filter.state.state
        ]
        return cri.ListContainersResponse(containers=found)

    async def ContainerStatus(self, request: Any, context: Any) -> Any:  # noqa: N802 - CRI's name
        self.asked.append(request.container_id)
        found = self.containers.get(request.container_id)
        if found is None:
            await context.abort(grpc.StatusCode.NOT_FOUND, "no such container")
        assert found is not None
        assert request.verbose
        if found.minors is None:
            return cri.ContainerStatusResponse(info={"info": "{"})
        devices = [{"path": "/dev/infiniband/x", "type": "c", "major": 231, "minor": minor} for minor in found.minors]
        return cri.ContainerStatusResponse(info={"info": json.dumps({"runtimeSpec": {"linux": {"devices": devices}}})})

    async def StopContainer(self, request: Any, context: Any) -> Any:  # noqa: N802 - CRI's name
        self.stopped.append((request.container_id, request.timeout))
        if not self.stops:
            await context.abort(grpc.StatusCode.UNKNOWN, "it does not stop")
        self.containers[request.container_id].state = EXITED
        return cri.StopContainerResponse()


@pytest.fixture
async def fake(tmp_path: Path, make: Any) -> AsyncIterator[FakeRuntime]:
    fake = FakeRuntime({"box": make.uid, "other": "uid-of-another"})
    server = grpc.aio.server()
    cri_grpc.add_RuntimeServiceServicer_to_server(fake, server)
    server.add_insecure_port(f"unix://{tmp_path}/runtime.sock")
    await server.start()
    yield fake
    await server.stop(None)


@pytest.fixture
async def runtime(fake: FakeRuntime, tmp_path: Path) -> AsyncIterator[Runtime]:
    async with grpc.aio.insecure_channel(f"unix://{tmp_path}/runtime.sock") as channel:
        yield Runtime(channel)


@pytest.fixture
def node(host: Path, make: Any) -> Path:
    """The host with the pod's record; its VFs have the minors 195 and 196."""
    (host / "state/pods").mkdir(parents=True)
    record = {"v": 1, "pod": "ml/web", "assignment": make.assignment}
    (host / f"state/pods/{make.uid}.json").write_text(json.dumps(record))
    return host


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def start(node: Path, runtime: Runtime, metrics: Metrics) -> Callable[..., Any]:
    """Make a check, and run it in the background."""

    def make_check(*, stops: bool = False) -> DeviceCheck:
        records = Records(node / "state", node / "run")
        roots = Roots(node / "sys", node / "dev", proc=node / "proc")
        return DeviceCheck(records, roots, node / "run", metrics, stops=stops)

    return make_check


def report(node: Path) -> dict[str, tuple[tuple[str, ...], bool]] | None:
    """Return what is in the report: VFs and whether it is stopped, by the container's id."""
    path = node / "run" / NAME
    found = read_without_devices(path.read_text()) if path.exists() else None
    return None if found is None else {each.id: (each.vfs, each.stopped) for each in found}


def value(metrics: Metrics, name: str) -> float | None:
    return metrics.registry.get_sample_value(name)


async def test_running_containers_that_lack_devices_are_found(
    fake: FakeRuntime, runtime: Runtime, start: Any, make: Any
) -> None:
    """Only of recorded pods, and only those that are entitled; exited ones and other pods' are not even asked about."""
    fake.containers = {
        "good": Container("trainer", "box", (195, 196)),
        "bare": Container("trainer", "box"),
        "half": Container("trainer", "box", (195,)),
        "sidecar": Container("sidecar", "box", (195,)),
        "ended": Container("trainer", "box", (), EXITED),
        "strange": Container("trainer", "other"),
        "lost": Container("trainer", "no such sandbox"),
    }
    found = await start().look(runtime)
    assert {id_: each.vfs for id_, (_, each) in found.without.items()} == {
        "bare": (make.first, make.second),
        "half": (make.second,),
    }
    assert found.unknown == 0
    assert sorted(fake.asked) == ["bare", "good", "half", "sidecar"]


async def test_containers_that_lack_gpus_are_found_too(
    fake: FakeRuntime, runtime: Runtime, start: Any, node: Path, make: Any
) -> None:
    """Of a pod without VFs as well; by the number of the node by which the GPU computes, as the host has it now."""
    gpu, other = "0000:1b:00.0", "0000:43:00.0"
    for minor, pci in ((7, gpu), (8, other)):
        function = node / "sys/bus/pci/devices" / pci
        function.mkdir(parents=True)
        (function / "vendor").write_text("0x10de\n")
        told = node / "proc/driver/nvidia/gpus" / pci / "information"
        told.parent.mkdir(parents=True)
        told.write_text(f"GPU UUID: \t GPU-{minor}\nDevice Minor: \t {minor}\n")
        os.mknod(node / f"dev/nvidia{minor}", stat.S_IFCHR | 0o600, os.makedev(231, minor))
    given = {
        "units": [gpu, other],
        "uuids": ["GPU-7", "GPU-8"],
        "containers": {"trainer": [gpu, other], "tail": [other]},
    }
    record = {"v": 1, "pod": "ml/web", "assignment": make.assignment | {"vfs": [], "ext": {"gpu": given}}}
    (node / f"state/pods/{make.uid}.json").write_text(json.dumps(record))
    fake.containers = {
        "good": Container("trainer", "box", (7, 8)),
        "half": Container("trainer", "box", (7,)),
        "bare": Container("tail", "box"),
        "none": Container("logger", "box"),
    }
    found = await start().look(runtime)
    lacks = {id_: (each.vfs, each.gpus) for id_, (_, each) in found.without.items()}
    assert lacks == {"half": ((), (other,)), "bare": ((), (other,))}
    assert sorted(fake.asked) == ["bare", "good", "half"]
    (node / "proc/driver/nvidia/gpus" / other / "information").write_text("")
    found = await start().look(runtime)
    assert (dict(found.without), found.unknown) == ({}, 3)


async def test_a_container_is_asked_about_once(fake: FakeRuntime, runtime: Runtime, start: Any, node: Path) -> None:
    """Its devices never change; those of its VFs may: their driver was bound again."""
    fake.containers = {"good": Container("trainer", "box", (195, 196)), "none": Container("trainer", "box")}
    check = start()
    await check.look(runtime)
    (found,) = (await check.look(runtime)).without
    assert (found, sorted(fake.asked)) == ("none", ["good", "none"])
    (node / "sys/bus/pci/devices/0000:04:00.5/infiniband_verbs/uverbs3/dev").write_text("231:200\n")
    assert sorted((await check.look(runtime)).without) == ["good", "none"]


async def test_what_cannot_be_judged_is_counted_and_hides_no_other(
    fake: FakeRuntime, runtime: Runtime, start: Any, node: Path, make: Any
) -> None:
    """A spec that cannot be read, a record that cannot, a VF without a device just now: none of them is stopped."""
    (node / "state/pods/broken.json").write_text("{")
    fake.containers = {"odd": Container("trainer", "box", None), "bare": Container("sidecar", "box")}
    found = await start().look(runtime)
    assert (list(found.without), found.unknown) == (["bare"], 2)
    (node / "sys/bus/pci/devices" / make.first / "infiniband_verbs/uverbs3").rename(node / "elsewhere")
    found = await start().look(runtime)
    assert (dict(found.without), found.unknown) == ({}, 3)


async def test_a_node_without_records_asks_the_runtime_nothing(
    fake: FakeRuntime, runtime: Runtime, start: Any, node: Path, make: Any
) -> None:
    """The look costs nothing where no pod has VFs."""
    (node / f"state/pods/{make.uid}.json").unlink()
    fake.containers = {"bare": Container("trainer", "box")}
    assert (await start().look(runtime)).without == {}
    assert fake.asked == []


async def test_it_is_told_at_the_start_and_whenever_asked(
    fake: FakeRuntime, runtime: Runtime, start: Any, node: Path, metrics: Metrics, make: Any
) -> None:
    """In the report, which the advertiser reads, and in the metric; nothing is stopped unless that is wanted."""
    fake.containers = {"bare": Container("trainer", "box")}
    check = start()
    running = asyncio.create_task(check.run(runtime))
    both = (make.first, make.second)
    await until(lambda: report(node) == {"bare": (both, False)})
    assert value(metrics, "mooring_cri_containers_without_devices") == 1
    fake.containers = {"bare2": Container("sidecar", "box"), "good": Container("trainer", "box", (195, 196))}
    check.ask()
    await until(lambda: report(node) == {"bare2": ((make.first,), False)})
    del fake.containers["bare2"]
    check.note(STATUS)
    await until(lambda: report(node) == {})
    assert value(metrics, "mooring_cri_containers_without_devices") == 0
    assert fake.stopped == []
    running.cancel()


async def test_a_container_is_stopped_once_the_kubelet_calls_here(
    fake: FakeRuntime, runtime: Runtime, start: Any, node: Path, metrics: Metrics, make: Any
) -> None:
    """Before that the kubelet would start it again past the shim; it has the time that its pod grants."""
    fake.containers = {"bare": Container("trainer", "box"), "good": Container("trainer", "box", (195, 196))}
    check = start(stops=True)
    running = asyncio.create_task(check.run(runtime))
    both = (make.first, make.second)
    await until(lambda: report(node) == {"bare": (both, False)})
    check.ask()
    check.note("/runtime.v1.RuntimeService/ListContainers")
    assert fake.stopped == []
    check.note(STATUS)
    await until(lambda: value(metrics, "mooring_cri_containers_stopped_total") == 1)
    assert report(node) == {"bare": (both, True)}
    assert fake.stopped == [("bare", 7)]
    check.ask()
    await until(lambda: report(node) == {})
    assert fake.stopped == [("bare", 7)]
    running.cancel()


async def test_a_stop_that_fails_is_tried_again_at_the_next_look(
    fake: FakeRuntime, runtime: Runtime, start: Any, metrics: Metrics
) -> None:
    """It is not counted, and stops nobody else's."""
    fake.containers = {"bare": Container("trainer", "box"), "bare2": Container("trainer", "box")}
    fake.stops = False
    check = start(stops=True)
    check.note(STATUS)
    running = asyncio.create_task(check.run(runtime))
    await until(lambda: len(fake.stopped) == 2)
    fake.stops = True
    check.ask()
    await until(lambda: value(metrics, "mooring_cri_containers_stopped_total") == 2)
    assert len(fake.stopped) == 4
    running.cancel()


async def test_a_runtime_that_is_gone_ends_no_check(fake: FakeRuntime, start: Any, node: Path, tmp_path: Path) -> None:
    """The next look finds it again."""
    fake.containers = {"bare": Container("trainer", "box")}
    check = start()
    async with grpc.aio.insecure_channel(f"unix://{tmp_path}/nobody.sock") as channel:
        running = asyncio.create_task(check.run(Runtime(channel)))
        await asyncio.sleep(0)
        check.ask()
        server = grpc.aio.server()
        cri_grpc.add_RuntimeServiceServicer_to_server(fake, server)
        server.add_insecure_port(f"unix://{tmp_path}/nobody.sock")
        await server.start()

        def found() -> bool:
            check.ask()
            return report(node) is not None

        await until(found)
        running.cancel()
        await server.stop(None)


def test_the_kubelets_return_is_noticed() -> None:
    """It asks for Status every 5 s; a first one after half a minute without is a return."""
    now = [100.0]
    calls = KubeletCalls(lambda: now[0])
    assert not calls.are_recent
    assert not calls.note("/runtime.v1.RuntimeService/Version")
    seen = []
    for now[0] in (100.0, 105.0, 110.0, 141.0, 146.0):
        seen.append(calls.note(STATUS))
    assert seen == [True, False, False, True, False]
    assert calls.are_recent


async def test_of_many_large_records_little_is_kept(
    fake: FakeRuntime, runtime: Runtime, start: Any, make: Any, node: Path
) -> None:
    """A tenant may have so much beside the VFs in each pod's assignment; and it still finds what lacks devices."""
    for number in range(20):
        assignment = make.assignment | {"uid": f"{make.uid[:-2]}{number:02}", "ext": {"x": [[]] * 60_000}}
        record = {"v": 1, "pod": "ml/web", "assignment": assignment}
        (node / f"state/pods/{assignment['uid']}.json").write_text(json.dumps(record, separators=(",", ":")))
    fake.containers = {"bare": Container("trainer", "box")}
    check = start()
    tracemalloc.start()
    try:
        found = await check.look(runtime)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found.without.keys() == {"bare"}
    assert most < _MOST_BYTES
