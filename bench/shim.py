"""Time CRI calls through mooring-cri-shim against the same calls straight to containerd; ratios of one run, as root.

    python -m bench.shim [--seconds 10] [--rounds 3]

Direct, through the shim, and through a reference (the least proxy that grpc.aio can be) take turns, so that all three
meet the same noise. The list is that of 500 containers.
"""

import argparse
import asyncio
import multiprocessing
import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import grpc
from cri_api.v1 import api_pb2 as cri
from cri_api.v1 import api_pb2_grpc as cri_grpc

from bench.loads.cri_load import SHIM_ENVIRONMENT, one_caller, saturating, steady
from cri_shim.proxy.proxy import CHANNEL_OPTIONS, SERVER_OPTIONS
from devcluster.processes import Processes
from devcluster.runtime.containerd import Containerd, Place
from devcluster.runtime.images import write_images

_LIST_BYTES, _CONTAINERS = 2_000_000, 500
_STEADY_RATE = 500
_CALLERS, _CLIENTS = 32, 2
_IN_TURN = 2000
_GOALS = "goals: added p50 under 0.7 ms, added p99 under 3 ms, 2,500 calls/s, lists within 1.3, RSS under 100 MiB"


@dataclass(frozen=True, slots=True)
class Sockets:
    """The runtime's own socket, and those of the shim and of the reference in front of it."""

    direct: str
    shim: str
    reference: str


def reference(socket: str, runtime: str) -> None:
    """Serve the least proxy that grpc.aio can be, until killed: what exceeds it is the shim's own cost."""

    async def serve() -> None:
        async with grpc.aio.insecure_channel(f"unix://{runtime}", options=CHANNEL_OPTIONS) as channel:

            class Passing(grpc.GenericRpcHandler):  # type: ignore[misc] # grpc has no types
                def service(self, details: Any) -> Any:
                    send = channel.unary_unary(details.method)

                    async def once(request: bytes, context: Any) -> bytes:
                        answer: bytes = await send(request, timeout=context.time_remaining())
                        return answer

                    return grpc.unary_unary_rpc_method_handler(once)

            server = grpc.aio.server(options=SERVER_OPTIONS)
            server.add_generic_rpc_handlers((Passing(),))
            server.add_insecure_port(f"unix://{socket}")
            await server.start()
            await server.wait_for_termination()

    asyncio.run(serve())


@contextmanager
def sockets(folder: Path) -> Iterator[tuple[Sockets, int]]:
    """Start containerd, the shim and the reference; yield their sockets and the shim's pid."""
    with ExitStack() as stack:
        processes = Processes(folder / "logs")
        place = Place(folder / "containerd", folder / "bin", folder / "conf")
        containerd = Containerd(place, write_images(folder / "images.tar"))
        stack.callback(containerd.stop)
        containerd.start()
        stack.callback(processes.stop)
        found = Sockets(str(place.socket), str(folder / "shim.sock"), str(folder / "reference.sock"))
        flags = ["--listen", f"unix://{found.shim}", "--runtime", place.endpoint, "--node-name", "bench"]
        folders = ["--state", str(folder / "state"), "--run", str(folder / "run")]
        processes.start("shim", [sys.executable, "-m", "cri_shim", *flags, *folders], SHIM_ENVIRONMENT)
        processes.await_ready("shim", Path(found.shim).exists)
        serving = [sys.executable, "-m", "bench.shim", "--reference", found.reference, found.direct]
        processes.start("reference", serving)
        processes.await_ready("reference", Path(found.reference).exists)
        yield found, processes.pid("shim")


def fill(socket: str) -> int:
    """Create containers with annotations until their list is as long as that of a full node; return its bytes."""
    with grpc.insecure_channel(f"unix://{socket}", options=CHANNEL_OPTIONS) as channel:
        stub = cri_grpc.RuntimeServiceStub(channel)
        host = cri.LinuxSandboxSecurityContext(namespace_options=cri.NamespaceOption(network=cri.NODE))
        config = cri.PodSandboxConfig(
            metadata=cri.PodSandboxMetadata(name="full", uid="full", namespace="bench"),
            linux=cri.LinuxPodSandboxConfig(security_context=host),
        )
        sandbox = stub.RunPodSandbox(cri.RunPodSandboxRequest(config=config)).pod_sandbox_id

        def create(number: int) -> None:
            container = cri.ContainerConfig(
                metadata=cri.ContainerMetadata(name=f"c{number}"),
                image=cri.ImageSpec(image="busybox"),
                annotations={"about": "x" * (_LIST_BYTES // _CONTAINERS)},
                linux=cri.LinuxContainerConfig(),
            )
            request = cri.CreateContainerRequest(pod_sandbox_id=sandbox, config=container, sandbox_config=config)
            stub.CreateContainer(request)

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(create, range(_CONTAINERS)))
        return int(stub.ListContainers(cri.ListContainersRequest()).ByteSize())


def in_turns(among: Sockets, rounds: int, measure: Callable[[str], float]) -> list[float]:
    """Measure direct, through the shim and through the reference in turns; return the median of each."""
    found = [[measure(socket) for socket in astuple(among)] for _ in range(rounds)]
    return [statistics.median(one) for one in zip(*found, strict=True)]


def percentile(times: Sequence[float], share: float) -> float:
    return sorted(times)[min(len(times) - 1, int(len(times) * share))]


def rss_mib(pid: int) -> float:
    """Return a process's resident memory in MiB, from /proc/<pid>/status."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS:"))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=10, help="for each steady or saturating load (default 10)")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each (default 3)")
    parser.add_argument("--reference", nargs=2, metavar="SOCKET", help="only serve the reference")
    options = parser.parse_args()
    if options.reference:
        reference(*options.reference)
        return
    spawn = multiprocessing.get_context("spawn")
    with (
        tempfile.TemporaryDirectory(prefix="mooring-bench-") as folder,
        sockets(Path(folder)) as (among, pid),
        ProcessPoolExecutor(_CLIENTS, mp_context=spawn) as clients,
    ):
        report(among, options.seconds, options.rounds, clients)
        print(f"RSS of the shim after all that: {rss_mib(pid):.0f} MiB")
        print(_GOALS)


def report(among: Sockets, seconds: float, rounds: int, clients: ProcessPoolExecutor) -> None:
    """Measure and print a line for each load."""

    def in_turn(socket: str) -> float:
        return statistics.median(clients.submit(one_caller, socket, "Version", _IN_TURN).result())

    def at_rate(socket: str) -> float:
        return percentile(clients.submit(steady, socket, "Version", _STEADY_RATE, seconds).result(), 0.99)

    def at_most(socket: str) -> float:
        work = [clients.submit(saturating, socket, "Version", _CALLERS, seconds) for _ in range(_CLIENTS)]
        return sum(one.result() for one in work) / seconds

    def listing(socket: str) -> float:
        return statistics.median(clients.submit(one_caller, socket, "ListContainers", 50).result())

    print(f"containerd; {os.cpu_count()} cores, Python {sys.version.split()[0]}, grpcio {grpc.__version__}")
    print(f"{'':32} {'direct':>9} {'shim':>9} {'reference':>9} {'shim - direct':>14} {'shim / direct':>14}")
    _line("Version, one caller, p50 ms", in_turns(among, rounds, in_turn))
    _line(f"Version, {_STEADY_RATE} calls/s, p99 ms", in_turns(among, rounds, at_rate))
    _line(f"Version, {_CLIENTS * _CALLERS} callers, calls/s", in_turns(among, rounds, at_most))
    listed = fill(among.direct)
    _line(f"list of {listed / 1e6:.1f} MB, p50 ms", in_turns(among, rounds, listing))


def _line(load: str, found: Sequence[float]) -> None:
    direct, shim, least = found
    print(f"{load:32} {direct:9.2f} {shim:9.2f} {least:9.2f} {shim - direct:14.2f} {shim / direct:14.2f}", flush=True)


if __name__ == "__main__":
    main()
