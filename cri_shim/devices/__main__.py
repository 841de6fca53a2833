"""Check once for containers without their devices: ``python -m cri_shim.devices``, for use while no shim runs.

It stops no container, because the kubelet would start it again without its devices.
"""

import asyncio
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import grpc
import structlog
from google.protobuf.message import DecodeError

from cri_shim.devices.device_check import DeviceCheck
from cri_shim.devices.device_nodes import Roots
from cri_shim.proxy.proxy import CHANNEL_OPTIONS
from cri_shim.records import Records
from cri_shim.runtime import Runtime
from mooring.gpu.cdi_folders import DEFAULT_FOLDERS
from mooring.program import log
from mooring.program.config import ConfigError, load, option

_SHIM = "mooring-cri-shim"
_SYSFS, _DEV, _PROC = Path("/sys"), Path("/dev"), Path("/proc")
_STATE, _RUN = Path("/var/lib/mooring"), Path("/run/mooring")
_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Options:
    """Check once for containers without the devices of their VFs; the options are those of mooring-cri-shim."""

    runtime: str = option("unix:///run/containerd/containerd.sock", "socket of the container runtime")
    sysfs: Path = option(_SYSFS, "mount point of sysfs")
    dev: Path = option(_DEV, "folder of the device nodes")
    proc: Path = option(_PROC, "mount point of procfs")
    cdi: str = option(DEFAULT_FOLDERS, "folders of CDI specifications, the same as the runtime's")
    state: Path = option(_STATE, "folder of the pod records and the ledger; must survive reboots")
    run: Path = option(_RUN, "folder of files that last until the next boot")


class _NoMetrics:
    """Metrics that are not served, because this process ends at once."""

    def set_device_check(self, without: int, unknown: int) -> None: ...

    def count_stop(self) -> None: ...


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the check; return 0 if its result is written for the advertiser, 1 on a failure, 2 for wrong usage."""
    try:
        _, options = load(Options, _SHIM, sys.argv[1:] if arguments is None else arguments, os.environ)
    except ConfigError as error:
        print(f"{_SHIM}: {error}", file=sys.stderr)
        return 2
    log.set_up(_SHIM)
    try:
        asyncio.run(_look(options))
    except (grpc.aio.AioRpcError, DecodeError, OSError) as reason:
        _log.error("cannot check the devices of containers", reason=str(reason))
        return 1
    return 0


async def _look(options: Options) -> None:
    roots = Roots(options.sysfs, options.dev, proc=options.proc, cdi=options.cdi)
    check = DeviceCheck(Records(options.state, options.run), roots, options.run, _NoMetrics(), stops=False)
    async with grpc.aio.insecure_channel(options.runtime, options=CHANNEL_OPTIONS) as channel:
        await check.check_containers(Runtime(channel))


if __name__ == "__main__":
    sys.exit(main())
