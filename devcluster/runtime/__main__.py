"""``python -m devcluster.runtime``: the fake CRI runtime of one simulated host, until SIGTERM."""

import asyncio
import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

import structlog

from devcluster import program
from devcluster.runtime.chain import Chain
from devcluster.runtime.server import serving
from mooring.program.config import option


@dataclass(frozen=True, slots=True)
class Options:
    """Serve CRI for one simulated host, without containerd."""

    listen: str = option("unix:///run/mooring-fake/cri.sock", "unix socket to serve CRI on")
    folder: str = option("/run/mooring-fake", "folder of network namespaces, logs and the root file system")
    cni_bin: str = option("/opt/cni/bin", "folder of the CNI plugins; the distributions' usual one")
    cni_conf: str = option("/etc/cni/net.d", "folder of the conflist; the first by name counts")
    images: str = option("", "further names of the busybox image, by commas; none are needed")


async def run(options: Options) -> None:
    """Serve until SIGTERM or SIGINT, then take the pods down."""
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    socket = Path(options.listen.removeprefix("unix://"))
    chain = Chain(Path(options.cni_bin).absolute(), Path(options.cni_conf).absolute(), dict(os.environ))
    names = [name for name in options.images.split(",") if name]
    async with serving(socket, Path(options.folder).absolute(), chain, names):
        structlog.get_logger().info("serving", socket=str(socket))
        await ended.wait()


if __name__ == "__main__":
    sys.exit(program.main(Options, "fake-runtime", run, os.environ))
