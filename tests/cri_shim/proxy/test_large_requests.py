"""One huge request costs the others nothing: the event loop, which serves them all, does not work on it.

The limits are in the loop's own CPU time, which does not depend on what else the machine does.
"""

import asyncio
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from cri_api.v1 import api_pb2 as full

from cri_shim.devices.device_nodes import Roots
from cri_shim.interceptors import Interceptors
from cri_shim.pb import cri_pb2 as cri
from cri_shim.plan.inject import Addition, Rules, add_to_container, decide_container
from cri_shim.proxy.proxy import RefusedError
from cri_shim.records import Records
from mooring.program.large_work import LARGE_BYTES, LargeWork

MOST_S = 0.1


@pytest.fixture
def interceptors(host: Path, rules: Rules) -> Interceptors:
    return Interceptors(rules, Records(host / "state", host / "run"), Roots(host / "sys", host / "dev"))


async def forwarded_and_cpu_s(call: Any) -> tuple[bytes, float]:
    """Return what is forwarded, and the CPU time that the event loop's thread has spent on it."""
    started = time.thread_time()
    async with call as raw:
        return raw, time.thread_time() - started


async def test_a_container_with_a_million_variables(interceptors: Interceptors, host: Path, make: Any) -> None:
    """As of some ConfigMaps: it gets its devices, and every variable stays."""
    async with interceptors.run_pod_sandbox(make.run(make.annotations)):
        pass
    for pci in (make.first, make.second):
        make.write_entry(host / "state", pci)
    raw = make.create(make.annotations, envs=[full.KeyValue(key=f"{number:x}") for number in range(500_000)])
    changed, spent_s = await forwarded_and_cpu_s(interceptors.create_container(raw))
    assert spent_s < MOST_S
    config = full.CreateContainerRequest.FromString(changed).config
    assert (len(config.envs), len(config.devices)) == (500_007, 3)


async def test_a_static_pod_with_a_million_annotations(interceptors: Interceptors, make: Any) -> None:
    """The API server's limit of 256 KiB does not hold for a manifest on the node."""
    raw = make.run({f"{number:x}": "" for number in range(500_000)})
    same, spent_s = await forwarded_and_cpu_s(interceptors.run_pod_sandbox(raw))
    assert spent_s < MOST_S
    assert same == raw


async def test_assignments_as_long_as_annotations_may_be(interceptors: Interceptors, make: Any) -> None:
    """Those of a tenant's pods, which are all started at once: each is refused for its last key."""
    keys = ",".join(f'"{number:05}":0' for number in range(25_000))
    raw = make.run({"mooring.dev/assignment": f'{{{keys},"00000":0}}'})
    started = time.thread_time()
    for _ in range(20):
        with pytest.raises(RefusedError, match="appears twice"):
            async with interceptors.run_pod_sandbox(raw):
                pass
    assert time.thread_time() - started < MOST_S


async def test_large_containers_are_worked_on_one_at_a_time(
    interceptors: Interceptors, make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many come at once: the event loop waits for each thread that works on one."""
    working, most, guard = 0, 0, threading.Lock()

    def slow(*given: Any) -> Any:
        nonlocal working, most
        with guard:
            working += 1
            most = max(most, working)
        # The others have the event loop meanwhile. How many of them wait for their turn is not to be seen here.
        time.sleep(0.02)
        with guard:
            working -= 1
        return decide_container(*given)

    async def create() -> None:
        async with interceptors.create_container(raw):
            pass

    monkeypatch.setattr("cri_shim.interceptors.decide_container", slow)
    raw = make.create(envs=[full.KeyValue(key=f"{number:x}") for number in range(100_000)])
    await asyncio.gather(*(create() for _ in range(4)))
    assert most == 1


async def test_a_small_container_whose_pod_has_a_large_record(interceptors: Interceptors, make: Any) -> None:
    """The assignment may be gone from the pod's annotations: what is read is the record."""
    annotations = make.annotations_with(ext={"x": [[]] * 60_000})
    async with interceptors.run_pod_sandbox(make.run(annotations)):
        pass
    started = time.thread_time()
    for _ in range(20):
        with pytest.raises(RefusedError, match="not in the ledger"):
            async with interceptors.create_container(make.create()):
                pass
    # Less than a fifth of it in each of the twenty.
    assert time.thread_time() - started < 4 * MOST_S


async def test_the_smallest_request_is_worked_on_first() -> None:
    """A container of a namespace with many services does not wait for a hundred that are larger."""
    large, done = LargeWork(), list[int]()
    sizes = [LARGE_BYTES * (number + 2) for number in range(4)]
    began = asyncio.create_task(large.run(sizes[-1], done.append, 0))
    await asyncio.sleep(0)
    later = [asyncio.create_task(large.run(size, done.append, size)) for size in (*sizes, LARGE_BYTES + 1)]
    await asyncio.gather(began, *later)
    assert done == [0, LARGE_BYTES + 1, *sizes]


async def test_a_caller_that_leaves_passes_its_turn_on() -> None:
    """Before its turn has come, and just when it has."""
    large, done = LargeWork(), list[int]()
    calls = [asyncio.create_task(large.run(LARGE_BYTES + 1 + call, done.append, call)) for call in range(4)]
    await asyncio.sleep(0)
    calls[1].cancel()
    await calls[0]
    calls[2].cancel()
    async with asyncio.timeout(90):
        await calls[3]
    assert done[0] == 0
    assert done[-1] == 3
    assert 1 not in done


def test_many_devices_beside_those_added() -> None:
    """Each is compared once, however many are added; what occupies an added path goes, and no other."""
    own = [f"/dev/x{number}" for number in range(20_000)]
    request = cri.CreateContainerRequest(
        config=cri.ContainerConfig(
            devices=[cri.Device(container_path=path) for path in (*own, "/dev/infiniband/", "//dev/infiniband/uverbs7")]
        )
    )
    added = [cri.Device(container_path=f"/dev/infiniband/uverbs{number}") for number in range(64)]
    started = time.thread_time()
    changed = add_to_container(request.SerializeToString(), request, Addition(added))
    assert time.thread_time() - started < 10 * MOST_S
    paths = [device.container_path for device in cri.CreateContainerRequest.FromString(changed).config.devices]
    assert paths == [*own, *(device.container_path for device in added)]
