"""Every message passes the shim unchanged: over real sockets, by independent stubs."""

import asyncio
import gc
import stat
import threading
import time
from typing import Any

import grpc
import pytest
from cri_api.v1 import api_pb2 as cri

from cri_shim.listen import ListenError
from tests.cri_shim.served import Shim, stubs
from tests.support.heap import heap_bytes
from tests.support.polling import eventually, until

_AT_ONCE = 6_000
# grpc's core cancels calls that no server has accepted for so long.
_GRPC_WAITS_S = 30
_LEAVE = 300


async def test_metadata_passes_both_ways(shim: Shim, channel: Any) -> None:
    """Request metadata, headers and trailers, binary ones too; the caller's user agent is not passed for ours."""
    runtime, _ = stubs(channel)
    call = runtime.Version(cri.VersionRequest(version="x"), metadata=(("traceparent", "00-1"), ("blob-bin", b"\xfe")))
    assert (await call).runtime_name == "fake"
    assert ("traceparent", "00-1") in shim.runtime.seen.metadata
    assert ("blob-bin", b"\xfe") in shim.runtime.seen.metadata
    assert ("header", "first") in tuple(await call.initial_metadata())
    assert ("trailer-bin", b"\x00\xff") in tuple(await call.trailing_metadata())


async def test_no_call_is_dropped_however_many_come_at_once(channel: Any) -> None:
    """The kubelet's own are among those that a tenant's probes come with."""
    runtime, _ = stubs(channel)
    calls = (runtime.Version(cri.VersionRequest(version="x")) for _ in range(_AT_ONCE))
    assert {answer.runtime_name for answer in await asyncio.gather(*calls)} == {"fake"}


@pytest.mark.slow
async def test_calls_wait_for_a_busy_shim_longer_than_grpc_lets_them(channel: Any) -> None:
    """On a node without free CPU the shim accepts none of them for a while."""
    runtime, _ = stubs(channel)
    await runtime.Version(cri.VersionRequest())
    calls = [runtime.Version(cri.VersionRequest()) for _ in range(1000)]
    # grpc's own threads take more of them in than the shim accepts in this time.
    await asyncio.sleep(0.02)
    time.sleep(_GRPC_WAITS_S + 1)
    assert {answer.runtime_name for answer in await asyncio.gather(*calls)} == {"fake"}


async def test_an_errors_code_text_and_details_pass(shim: Shim, channel: Any) -> None:
    """Status code, a message of 100 kB, and the rich details among the trailers."""
    runtime, _ = stubs(channel)
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await runtime.Status(cri.StatusRequest())
    assert error.value.code() == grpc.StatusCode.NOT_FOUND
    assert error.value.details() == shim.runtime.long
    assert {shim.runtime.details, ("trailer", "last")} <= set(error.value.trailing_metadata())


async def test_headers_pass_where_the_call_fails_after_them(shim: Shim, channel: Any) -> None:
    """An error removes nothing that the runtime has sent before."""
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await channel.unary_unary("/runtime.v1.RuntimeService/PodSandboxStatus")(b"")
    assert error.value.code() == grpc.StatusCode.INTERNAL
    assert ("header", "first") in tuple(error.value.initial_metadata())


async def test_a_call_that_the_runtime_cancels_is_not_a_failure_of_the_shim(channel: Any) -> None:
    """CANCELLED from the runtime is a status like any other."""
    runtime, _ = stubs(channel)
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await runtime.ContainerStatus(cri.ContainerStatusRequest())
    assert (error.value.code(), error.value.details()) == (grpc.StatusCode.CANCELLED, "the runtime gave up")


async def test_a_deadline_passes_and_none_stays_none(shim: Shim, channel: Any) -> None:
    """The runtime sees the rest of the caller's time, or that no limit is set."""
    runtime, _ = stubs(channel)
    await runtime.Version(cri.VersionRequest(), timeout=60)
    await runtime.Version(cri.VersionRequest())
    limited, unlimited = shim.runtime.seen.remaining[-2:]
    assert limited is not None
    assert 50 < limited < 61  # on the wire a time-out has few digits, and is rounded up
    assert unlimited is None


async def test_a_hung_runtime_costs_only_its_own_call(shim: Shim, channel: Any) -> None:
    """The deadline ends the call, at the runtime too; other calls go on meanwhile."""
    runtime, _ = stubs(channel)
    hung = asyncio.ensure_future(runtime.ExecSync(cri.ExecSyncRequest(), timeout=4))
    await until(lambda: any(name == "ExecSync" for name, _ in shim.runtime.seen.raw))
    assert (await runtime.Version(cri.VersionRequest(), timeout=60)).runtime_name == "fake"
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await hung
    assert error.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    await asyncio.wait_for(shim.runtime.seen.cancelled.wait(), 90)


async def test_a_cancelled_call_is_cancelled_at_the_runtime(shim: Shim, channel: Any) -> None:
    """This covers unary calls, and a stream whose caller has read enough."""
    runtime, _ = stubs(channel)
    call = runtime.ExecSync(cri.ExecSyncRequest())
    await until(lambda: any(name == "ExecSync" for name, _ in shim.runtime.seen.raw))
    call.cancel()
    await asyncio.wait_for(shim.runtime.seen.cancelled.wait(), 90)
    shim.runtime.seen.cancelled.clear()
    shim.runtime.events = 0
    stream = runtime.GetContainerEvents(cri.GetEventsRequest())
    assert ("header", "stream") in tuple(await stream.initial_metadata())
    stream.cancel()
    await asyncio.wait_for(shim.runtime.seen.cancelled.wait(), 90)


async def test_calls_whose_caller_leaves_take_no_memory_for_ever(channel: Any) -> None:
    """Probes that end by their deadline, each second for years; grpc's core had kept 1 KiB of each."""
    runtime, _ = stubs(channel)

    async def leave() -> None:
        with pytest.raises(grpc.aio.AioRpcError):
            await runtime.ExecSync(cri.ExecSyncRequest(), timeout=0.3)

    async def leave_together() -> None:
        await asyncio.gather(*(leave() for _ in range(_LEAVE)))

    def used_bytes() -> int:
        gc.collect()
        return heap_bytes()

    for _ in range(3):
        await leave_together()
    # grpc's core frees what it has for a call some time after the call's end, and tells nobody; a leak stays.
    before = used_bytes()
    await asyncio.sleep(0.3)
    while (used := used_bytes()) < before:
        before = used
        await asyncio.sleep(0.3)
    for _ in range(4):
        await leave_together()
    await until(lambda: (used_bytes() - before) / (4 * _LEAVE) < 500, "the calls' memory is freed")


async def test_a_stream_passes_event_by_event(shim: Shim, channel: Any) -> None:
    """Server streaming with headers before the first event and trailers after the last."""
    runtime, _ = stubs(channel)
    call = runtime.GetContainerEvents(cri.GetEventsRequest())
    assert [event.container_id async for event in call] == ["0", "1", "2"]
    assert ("trailer", "stream") in tuple(await call.trailing_metadata())
    await until(lambda: shim.count("GetContainerEvents", "OK") == 1)


async def test_a_client_that_does_not_read_holds_the_runtime_back(shim: Shim, channel: Any) -> None:
    """The shim buffers no stream: of 300 events of 1 MB a few are under way, and other calls go on."""
    shim.runtime.events, shim.runtime.event_bytes = 300, 1_000_000
    runtime, _ = stubs(channel)
    call = runtime.GetContainerEvents(cri.GetEventsRequest())
    await call.read()
    for _ in range(50):
        await runtime.Version(cri.VersionRequest(), timeout=60)
    assert shim.runtime.seen.written < 100
    call.cancel()


async def test_methods_of_a_kubelet_to_come_pass(shim: Shim, channel: Any) -> None:
    """A method that neither side knows, streaming or not, and its UNIMPLEMENTED where the runtime does not have it."""
    answers = channel.unary_stream(shim.runtime.future)(b"\x0a\x01x")
    assert [cri.ContainerEventResponse.FromString(raw).container_id async for raw in answers] == ["0", "1", "2"]
    assert await channel.unary_unary("/runtime.v1.RuntimeService/FutureOnce")(b"") == b""
    assert await channel.unary_unary("/runtime.v1.FutureService/Once")(b"") == b""


async def test_the_image_service_passes(shim: Shim, channel: Any) -> None:
    """One socket serves both services of CRI."""
    _, image = stubs(channel)
    await image.PullImage(cri.PullImageRequest(image=cri.ImageSpec(image="busybox")))
    assert shim.runtime.seen.raw[-1][0] == "PullImage"


async def test_a_list_of_thirty_thousand_containers_passes_both_ways(channel: Any) -> None:
    """The messages have 20 MiB, where grpc's usual limit is 4."""
    items = [cri.Container(id=f"{number:064}", labels={"app": "x" * 650}) for number in range(30_000)]
    sent = cri.ListContainersResponse(containers=items).SerializeToString()
    assert len(sent) > 20 * 1024 * 1024
    echo = channel.unary_unary("/runtime.v1.RuntimeService/ListContainers")
    assert await echo(sent) == sent


async def test_what_large_answers_leave_in_the_heap_is_given_back(
    channel: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once, after the last of them; probes may print 16 MiB. What is small leaves nothing."""
    given_back = list[float]()

    async def come_to_rest() -> None:
        """Return when all that was to be given back has been: no timer runs any more."""
        await until(lambda: not any(isinstance(thread, threading.Timer) for thread in threading.enumerate()))

    # What came before in this process.
    await come_to_rest()
    monkeypatch.setattr("mooring.program.large_work.trim_memory", lambda: given_back.append(time.monotonic()))
    echo = channel.unary_unary("/runtime.v1.RuntimeService/ListContainers")
    # What the first answer leaves is known when the second is there.
    for _ in range(2):
        await echo(b"")
    await come_to_rest()
    assert given_back == []
    for _ in range(3):
        await echo(b"x" * (2 << 20))
    await until(lambda: bool(given_back))
    await come_to_rest()
    assert len(given_back) == 1


async def test_the_runtimes_absence_is_unavailable_and_its_return_is_noticed(shim: Shim, channel: Any) -> None:
    """Callers that keep calling are answered at once all the while, and served soon after it is back."""
    runtime, _ = stubs(channel)

    async def code() -> grpc.StatusCode:
        answer: grpc.StatusCode = await runtime.Version(cri.VersionRequest(), timeout=60).code()
        return answer

    async def served() -> bool:
        found = await code()
        assert found in (grpc.StatusCode.OK, grpc.StatusCode.UNAVAILABLE)
        return bool(found == grpc.StatusCode.OK)

    await runtime.Version(cri.VersionRequest())
    await shim.runtime.stop()
    away = time.monotonic() + 1
    while time.monotonic() < away:
        assert await code() == grpc.StatusCode.UNAVAILABLE
    await shim.runtime.start(shim.runtime_socket)
    await eventually(served)


async def test_the_old_api_is_refused_with_the_reason(channel: Any) -> None:
    """A kubelet tries v1alpha2 before it gives up; nothing else than CRI is served at all."""
    for method, text in (("runtime.v1alpha2.RuntimeService", "runtime.v1 only"), ("other.Service", "not found")):
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await channel.unary_unary(f"/{method}/Version")(b"")
        assert error.value.code() == grpc.StatusCode.UNIMPLEMENTED
        assert text in (error.value.details() or "")


async def test_the_socket_is_roots_and_one_servers(shim: Shim, channel: Any) -> None:
    """Mode 0600; a second server is refused by the lock and takes nothing over."""
    assert stat.S_IMODE(shim.socket.stat().st_mode) == 0o600
    second = Shim(shim.folder, None)
    await second.start()
    with pytest.raises(ListenError, match="served by another process"):
        await second.stop()
    runtime, _ = stubs(channel)
    assert (await runtime.Version(cri.VersionRequest())).runtime_name == "fake"


async def test_calls_are_counted_by_method_and_code(shim: Shim, channel: Any) -> None:
    """Names that are not CRI's share one label: they are the caller's to choose."""
    runtime, _ = stubs(channel)
    await runtime.Version(cri.VersionRequest())
    with pytest.raises(grpc.aio.AioRpcError):
        await runtime.Status(cri.StatusRequest())
    await channel.unary_unary("/runtime.v1.RuntimeService/Made-Up")(b"")
    await until(lambda: shim.count("other", "OK") == 1)
    assert (shim.count("Version", "OK"), shim.count("Status", "NOT_FOUND")) == (1, 1)


async def test_what_cannot_be_decoded_passes_unchanged(shim: Shim, channel: Any) -> None:
    """The runtime answers for itself; the calls of a pod that requests no VF pass unchanged."""
    for method, raw in (("RunPodSandbox", b"\x0a\xff\xff"), ("CreateContainer", b"\x12\x05abc")):
        await channel.unary_unary(f"/runtime.v1.RuntimeService/{method}")(raw)
        assert shim.runtime.seen.raw[-1] == (method, raw)


async def test_a_refusal_is_failed_precondition_with_pod_and_reason(shim: Shim, channel: Any, make: Any) -> None:
    """A user finds the reason in the pod's events; the call does not reach the runtime."""
    run = channel.unary_unary("/runtime.v1.RuntimeService/RunPodSandbox")
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await run(make.run({"mooring.dev/interfaces": "[{}]"}))
    assert error.value.code() == grpc.StatusCode.FAILED_PRECONDITION
    assert (error.value.details() or "").startswith("mooring: pod ml/web: the pod requests 1 VFs but has no annotation")
    assert "RunPodSandbox" not in [name for name, _ in shim.runtime.seen.raw]


async def test_a_pods_life_through_the_shim(shim: Shim, channel: Any, make: Any) -> None:
    """Recorded before the sandbox is made, refused while the ledger lacks a VF, then given its devices."""
    run = channel.unary_unary("/runtime.v1.RuntimeService/RunPodSandbox")
    create = channel.unary_unary("/runtime.v1.RuntimeService/CreateContainer")
    state = shim.folder / "state"
    await run(make.run(make.annotations))
    assert shim.runtime.seen.raw[-1] == ("RunPodSandbox", make.run(make.annotations))
    assert (state / f"pods/{make.uid}.json").exists()
    make.write_entry(state, make.first)
    raw = make.create(make.annotations)
    with pytest.raises(grpc.aio.AioRpcError, match="is not in the ledger"):
        await create(raw)
    make.write_entry(state, make.second, ifname="net2")
    await create(raw)
    name, forwarded = shim.runtime.seen.raw[-1]
    assert name == "CreateContainer"
    assert forwarded.startswith(raw)
    seen = cri.CreateContainerRequest.FromString(forwarded).config
    paths = [f"{shim.folder}/dev/infiniband/{node}" for node in ("uverbs3", "rdma_cm", "uverbs4")]
    assert [device.host_path for device in seen.devices] == paths
    assert {variable.key for variable in seen.envs} == {
        "MOORING_DEVICES",
        "MOONCAKE_DEVICE",
        "MOORING_RDMA_DEVICES",
        "MORI_RDMA_DEVICES",
        "NCCL_IB_HCA",
        "NVSHMEM_HCA_LIST",
        "UCX_NET_DEVICES",
    }
