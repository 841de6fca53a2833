"""The fake runtime with real CNI plugins and a plugin that writes down how it was called."""

import asyncio
import json
import os
import stat
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from cri_api.v1 import api_pb2 as cri
from cri_api.v1 import api_pb2_grpc as cri_grpc

from devcluster.runtime import mounts, netns
from devcluster.runtime.chain import Chain
from devcluster.runtime.server import serving
from tests.support.polling import eventually, until

Configure = Callable[..., Any]
pytestmark = pytest.mark.root

# Writes each call to a file of its own, then follows the file `behaviour` next to it.
_RECORDER = """\
#!/bin/sh
here=$(dirname "$0")
input=$(cat)
call=$(mktemp "$here/call.XXXXXX")
previous=$(printf %s "$input" | sed -n 's/.*"prevResult".*/yes/p')
printf '%s\\n%s\\n%s\\n%s\\n%s' "$CNI_COMMAND" "$CNI_NETNS" "$CNI_ARGS" "${previous:-no}" "$input" > "$call.part"
rm "$call"
mv "$call.part" "$here/$(date +%s%N).done"
. "$here/behaviour"
"""
_PASS = """printf '%s' '{"cniVersion":"1.0.0","ips":[{"address":"10.9.8.7/24"}],"extra":1}'"""
_FAIL_ADD = 'test "$CNI_COMMAND" != ADD || { echo \'{"code":100,"msg":"no","details":"never"}\'; exit 1; }'
_FAIL_DEL = 'test "$CNI_COMMAND" != DEL || { echo \'{"code":100,"msg":"stuck"}\'; exit 1; }\n' + _PASS
_HANG_ADD = f'test "$CNI_COMMAND" != ADD || exec sleep 600\n{_PASS}'


class Recorder:
    """The recording plugin in a folder of plugins: its calls so far, and what it is to do next."""

    def __init__(self, bin_folder: Path) -> None:
        self._folder = bin_folder
        plugin = bin_folder / "recorder"
        plugin.write_text(_RECORDER)
        plugin.chmod(plugin.stat().st_mode | stat.S_IXUSR)
        self.behave(_PASS)

    def behave(self, text: str) -> None:
        (self._folder / "behaviour").write_text(text)

    def calls(self) -> list[dict[str, Any]]:
        found = []
        for path in sorted(self._folder.glob("*.done")):
            command, netns, arguments, previous, stdin = path.read_text().split("\n", 4)
            found.append(
                {
                    "command": command,
                    "netns": netns,
                    "args": dict(pair.split("=") for pair in arguments.split(";")),
                    "previous": previous == "yes",
                    "stdin": json.loads(stdin),
                }
            )
        return found

    def seen(self) -> list[tuple[str, bool, bool]]:
        """Return each call as (command, was there a netns, was there a prevResult)."""
        return [(call["command"], bool(call["netns"]), call["previous"]) for call in self.calls()]


@pytest.fixture
def plugins(tmp_path: Path, cni_plugins: Path) -> Path:
    """A folder of plugins with the system's plugins in it."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("loopback", "bridge", "host-local"):
        (folder / name).symlink_to(cni_plugins / name)
    return folder


@pytest.fixture
def recorder(plugins: Path, tmp_path: Path, write_conflist: Configure) -> Recorder:
    """The recorder alone in the chain, with the annotations' capability."""
    write_conflist(tmp_path / "conf", {"type": "recorder", "capabilities": {"io.kubernetes.cri.pod-annotations": True}})
    return Recorder(plugins)


@asynccontextmanager
async def _runtime(folder: Path) -> AsyncIterator[Any]:
    """Serve a fake runtime in ``folder`` and give a stub to it; what it leaves mounted fails the test."""
    environment: Mapping[str, str] = {"PATH": os.environ["PATH"]}
    chain = Chain(folder / "bin", folder / "conf", environment)
    socket = folder / "cri.sock"
    async with (
        serving(socket, folder / "state", chain, ["example.org/app:1"]),
        grpc.aio.insecure_channel(f"unix://{socket}") as channel,
    ):
        yield cri_grpc.RuntimeServiceStub(channel)
    assert mounts.mounts_below(folder) == []


async def _run(stub: Any, config: Any, timeout: float = 60) -> str:
    response = await stub.RunPodSandbox(cri.RunPodSandboxRequest(config=config), timeout=timeout)
    return str(response.pod_sandbox_id)


async def _run_once_free(stub: Any, config: Any) -> str:
    """Try as a kubelet does: a call that was given up keeps the sandbox's name until it has cleaned up."""
    while True:
        try:
            return await _run(stub, config)
        except grpc.aio.AioRpcError as refused:
            if "is reserved for" not in (refused.details() or ""):
                raise
            await asyncio.sleep(0.05)


async def _remove(stub: Any, sandbox: str) -> None:
    await stub.StopPodSandbox(cri.StopPodSandboxRequest(pod_sandbox_id=sandbox), timeout=60)
    await stub.RemovePodSandbox(cri.RemovePodSandboxRequest(pod_sandbox_id=sandbox), timeout=60)


async def _start(stub: Any, sandbox: str, config: Any, sandbox_config: Any) -> str:
    creation = cri.CreateContainerRequest(pod_sandbox_id=sandbox, config=config, sandbox_config=sandbox_config)
    container = (await stub.CreateContainer(creation, timeout=60)).container_id
    await stub.StartContainer(cri.StartContainerRequest(container_id=container), timeout=60)
    return str(container)


async def _execute(stub: Any, container: str, *command: str) -> Any:
    request = cri.ExecSyncRequest(container_id=container, cmd=command, timeout=10)
    return await stub.ExecSync(request, timeout=60)


async def test_a_pod_gets_its_address_and_loopback_from_real_plugins(
    tmp_path: Path,
    plugins: Path,
    write_conflist: Configure,
    bridge: dict[str, object],
    sandbox_config: Configure,
    container_config: Configure,
) -> None:
    """The status shows the address that host-local gave, and the container sees eth0 and lo up."""
    write_conflist(tmp_path / "conf", bridge)
    async with _runtime(tmp_path) as stub:
        config = sandbox_config("p1")
        sandbox = await _run(stub, config)
        status = await stub.PodSandboxStatus(cri.PodSandboxStatusRequest(pod_sandbox_id=sandbox))
        container = await _start(stub, sandbox, container_config("main"), config)
        listing = await _execute(stub, container, "ip", "-o", "addr")
        assert status.status.network.ip == "10.253.0.2"
        assert b"eth0    inet 10.253.0.2/24" in listing.stdout
        assert b"lo    inet 127.0.0.1/8" in listing.stdout
        await _remove(stub, sandbox)
        assert not list((tmp_path / "addresses" / "test").glob("10.*"))


async def test_del_comes_twice_and_the_second_time_without_netns_and_previous_result(
    tmp_path: Path, recorder: Recorder, sandbox_config: Configure
) -> None:
    """StopPodSandbox passes both to DEL, RemovePodSandbox neither."""
    async with _runtime(tmp_path) as stub:
        await _remove(stub, await _run(stub, sandbox_config("p1")))
    assert recorder.seen() == [("ADD", True, False), ("DEL", True, True), ("DEL", False, False)]


async def test_annotations_reach_a_plugin_that_declares_the_capability(
    tmp_path: Path, recorder: Recorder, sandbox_config: Configure
) -> None:
    """All of the pod's annotations are passed; for a pod without any the value is null."""
    async with _runtime(tmp_path) as stub:
        await _run(stub, sandbox_config("p1", {"a": "b"}))
        await _run(stub, sandbox_config("p2"))
        first, second = recorder.calls()
    assert first["stdin"]["runtimeConfig"] == {"io.kubernetes.cri.pod-annotations": {"a": "b"}}
    assert second["stdin"]["runtimeConfig"] == {"io.kubernetes.cri.pod-annotations": None}
    assert first["args"]["K8S_POD_UID"] == "uid-p1"
    assert first["args"]["IgnoreUnknown"] == "1"


async def test_the_previous_result_keeps_standard_fields_only(
    tmp_path: Path, recorder: Recorder, sandbox_config: Configure
) -> None:
    """Fields that a plugin adds to its result beyond the specification are gone at DEL."""
    async with _runtime(tmp_path) as stub:
        await _remove(stub, await _run(stub, sandbox_config("p1")))
    expected = {"cniVersion": "1.0.0", "ips": [{"address": "10.9.8.7/24"}], "dns": {}}
    assert recorder.calls()[1]["stdin"]["prevResult"] == expected


async def test_a_failed_add_is_reported_in_the_runtimes_words_and_followed_by_del(
    tmp_path: Path, recorder: Recorder, sandbox_config: Configure
) -> None:
    """UNKNOWN with plugin, message and details; then DEL without prevResult, and no sandbox is listed."""
    recorder.behave(_FAIL_ADD)
    async with _runtime(tmp_path) as stub:
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            await _run(stub, sandbox_config("p1"))
        listed = await stub.ListPodSandbox(cri.ListPodSandboxRequest())
    assert failed.value.code() == grpc.StatusCode.UNKNOWN
    details = failed.value.details() or ""
    assert details.startswith('failed to setup network for sandbox "')
    assert details.endswith('": plugin type="recorder" failed (add): no; never')
    assert recorder.seen() == [("ADD", True, False), ("DEL", True, False)]
    assert list(listed.items) == []


async def test_a_deadline_during_add_kills_the_plugin_and_del_follows(
    tmp_path: Path, recorder: Recorder, sandbox_config: Configure
) -> None:
    """The plugin does not survive its caller, and the same pod can be started again."""
    recorder.behave(_HANG_ADD)
    async with _runtime(tmp_path) as stub:
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            await _run(stub, sandbox_config("p1"), timeout=4)
        assert failed.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
        await until(lambda: recorder.seen() == [("ADD", True, False), ("DEL", True, False)])
        await until(lambda: not mounts.mounts_below(tmp_path / "state"))
        recorder.behave(_PASS)
        assert await _run_once_free(stub, sandbox_config("p1"))


async def test_the_end_waits_for_calls_whose_clients_have_gone(
    tmp_path: Path, recorder: Recorder, sandbox_config: Configure
) -> None:
    """DEL of a start that was given up has ended, and so has the network namespace."""
    recorder.behave(f'test "$CNI_COMMAND" = ADD || {{ sleep 0.5; touch {tmp_path}/deleted; }}\n{_HANG_ADD}')
    async with _runtime(tmp_path) as stub:
        call = stub.RunPodSandbox(cri.RunPodSandboxRequest(config=sandbox_config("p1")))
        await until(lambda: [call["command"] for call in recorder.calls()] == ["ADD"])
        call.cancel()
    assert (tmp_path / "deleted").exists()
    assert not mounts.mounts_below(tmp_path / "state")


async def test_a_cancelled_removal_of_a_network_namespace_leaves_no_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The caller goes on only once the command has ended."""
    (tmp_path / "umount").write_text(f"#!/bin/sh\ntouch {tmp_path}/begun\nsleep 0.5\ntouch {tmp_path}/ended\n")
    (tmp_path / "umount").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    (tmp_path / "netns").touch()
    removal = asyncio.create_task(netns.remove(tmp_path / "netns"))
    # Within the start of the command, too.
    while not (tmp_path / "begun").exists():
        await asyncio.sleep(0)
    removal.cancel()
    with pytest.raises(asyncio.CancelledError):
        await removal
    assert (tmp_path / "ended").exists()
    assert not (tmp_path / "netns").exists()


async def test_a_failing_del_makes_stop_and_remove_fail_until_it_heals(
    tmp_path: Path, recorder: Recorder, sandbox_config: Configure
) -> None:
    """The sandbox stays listed, not ready, and keeps its netns for the next attempt."""
    recorder.behave(_FAIL_DEL)
    async with _runtime(tmp_path) as stub:
        sandbox = await _run(stub, sandbox_config("p1"))
        with pytest.raises(grpc.aio.AioRpcError, match="failed to destroy network"):
            await stub.StopPodSandbox(cri.StopPodSandboxRequest(pod_sandbox_id=sandbox))
        with pytest.raises(grpc.aio.AioRpcError, match="stuck"):
            await stub.RemovePodSandbox(cri.RemovePodSandboxRequest(pod_sandbox_id=sandbox))
        (listed,) = (await stub.ListPodSandbox(cri.ListPodSandboxRequest())).items
        assert (listed.id, listed.state) == (sandbox, cri.SANDBOX_NOTREADY)
        recorder.behave(_PASS)
        await _remove(stub, sandbox)
        assert recorder.seen()[-2:] == [("DEL", True, True), ("DEL", False, False)]
        assert list((await stub.ListPodSandbox(cri.ListPodSandboxRequest())).items) == []


async def test_a_pod_on_the_hosts_network_has_no_cni_calls(
    tmp_path: Path, recorder: Recorder, sandbox_config: Configure
) -> None:
    """Neither ADD nor DEL is called for it."""
    config = sandbox_config("p1")
    config.linux.security_context.namespace_options.network = cri.NODE
    async with _runtime(tmp_path) as stub:
        await _remove(stub, await _run(stub, config))
    assert recorder.calls() == []


async def test_a_container_sees_exactly_the_devices_it_was_given(
    tmp_path: Path, recorder: Recorder, sandbox_config: Configure, container_config: Configure
) -> None:
    """The node is in the container's own /dev; the verbose status carries devices and environment."""
    node = tmp_path / "uverbs3"
    os.mknod(node, 0o20600, os.makedev(231, 195))
    async with _runtime(tmp_path) as stub:
        config = sandbox_config("p1")
        sandbox = await _run(stub, config)
        command = ("sh", "-c", "echo $PURPOSE > /tmp/purpose; exec sleep 3600")
        container = await _start(stub, sandbox, container_config("main", *command, devices=(node,)), config)
        listing = await _execute(stub, container, "ls", "-l", "/dev/infiniband")
        wait = "until test -s /tmp/purpose; do sleep 0.02; done; cat /tmp/purpose; echo $PURPOSE"
        purpose = await _execute(stub, container, "sh", "-c", wait)
        status = await stub.ContainerStatus(cri.ContainerStatusRequest(container_id=container, verbose=True))
    assert b"231, 195" in listing.stdout
    assert listing.stdout.split()[-1] == b"uverbs3"
    assert purpose.stdout == b"test\ntest\n"
    described = json.loads(status.info["info"])["config"]
    assert described["devices"] == [
        {"container_path": "/dev/infiniband/uverbs3", "host_path": str(node), "permissions": "rw"}
    ]
    assert described["envs"] == [{"key": "PURPOSE", "value": "test"}]


async def test_a_command_ends_at_its_limit_with_all_that_it_has_started(
    tmp_path: Path, recorder: Recorder, sandbox_config: Configure, container_config: Configure
) -> None:
    config = sandbox_config("p1")
    async with _runtime(tmp_path) as stub:
        container = await _start(stub, await _run(stub, config), container_config("main"), config)
        command = cri.ExecSyncRequest(container_id=container, cmd=["sh", "-c", "sleep 600; true"], timeout=1)
        with pytest.raises(grpc.aio.AioRpcError, match="'sh' ran into its limit"):
            await stub.ExecSync(command, timeout=60)


async def test_a_running_container_pins_no_other_pods_network_namespace(
    tmp_path: Path, recorder: Recorder, sandbox_config: Configure, container_config: Configure
) -> None:
    """A container's mounts are its own: a copy of the host's would keep the netns of every pod alive."""
    async with _runtime(tmp_path) as stub:
        await _run(stub, sandbox_config("other"))
        config = sandbox_config("p1")
        container = await _start(stub, await _run(stub, config), container_config("main"), config)
        table = await _execute(stub, container, "cat", "/proc/self/mountinfo")
    assert b" /dev " in table.stdout
    assert b"nsfs" not in table.stdout


async def test_a_missing_device_is_refused_when_the_container_is_created(
    tmp_path: Path, recorder: Recorder, sandbox_config: Configure, container_config: Configure
) -> None:
    """The answer is the runtime's: UNKNOWN, lstat and the path."""
    async with _runtime(tmp_path) as stub:
        config = sandbox_config("p1")
        with pytest.raises(grpc.aio.AioRpcError, match=r"lstat .*/absent: no such file") as refused:
            await _start(stub, await _run(stub, config), container_config("c", devices=(tmp_path / "absent",)), config)
    assert refused.value.code() == grpc.StatusCode.UNKNOWN


async def test_a_container_that_ends_shows_its_exit_status(
    tmp_path: Path, recorder: Recorder, sandbox_config: Configure, container_config: Configure
) -> None:
    """Exit statuses reach ContainerStatus; a stopped container shows the signal's."""
    async with _runtime(tmp_path) as stub:
        config = sandbox_config("p1")
        sandbox = await _run(stub, config)
        failed = await _start(stub, sandbox, container_config("a", "sh", "-c", "exit 3"), config)
        stopped = await _start(stub, sandbox, container_config("b"), config)
        await stub.StopContainer(cri.StopContainerRequest(container_id=stopped, timeout=10))
        assert await _exit_status(stub, failed) == 3
        assert await _exit_status(stub, stopped) == 128 + 15


async def _exit_status(stub: Any, container: str) -> int:
    async def ended() -> Any:
        status = (await stub.ContainerStatus(cri.ContainerStatusRequest(container_id=container))).status
        return status if status.state == cri.CONTAINER_EXITED else None

    return int((await eventually(ended)).exit_code)


async def test_an_unknown_image_is_refused(
    tmp_path: Path, recorder: Recorder, sandbox_config: Configure, container_config: Configure
) -> None:
    """Only busybox, pause and the names given are there; nothing is pulled."""
    async with _runtime(tmp_path) as stub:
        config, container = sandbox_config("p1"), container_config("main")
        container.image.image = "example.org/other"
        with pytest.raises(grpc.aio.AioRpcError, match="not found"):
            await _start(stub, await _run(stub, config), container, config)


async def test_two_sandboxes_of_the_same_pod_and_attempt_are_refused(
    tmp_path: Path, recorder: Recorder, sandbox_config: Configure
) -> None:
    """The name is reserved, also while the first is being made; the next attempt number is another name."""
    async with _runtime(tmp_path) as stub:
        await _run(stub, sandbox_config("p1"))
        with pytest.raises(grpc.aio.AioRpcError, match="failed to reserve sandbox name"):
            await _run(stub, sandbox_config("p1"))
        assert await _run(stub, sandbox_config("p1", attempt=1))
