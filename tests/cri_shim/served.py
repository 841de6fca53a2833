"""The shim's server in the test's process, before a runtime with configured answers."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cri_api.v1 import api_pb2_grpc as cri_grpc

from cri_shim.devices.device_check import DeviceCheck
from cri_shim.devices.device_nodes import Roots
from cri_shim.interceptors import Interceptors
from cri_shim.metrics import Metrics
from cri_shim.plan.inject import Rules
from cri_shim.records import Records
from cri_shim.server import Systemd, serve
from tests.support.polling import until

OPTIONS = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.max_metadata_size", 1 << 20),
    ("grpc.absolute_max_metadata_size", 1 << 20),
)


def stubs(channel: Any) -> tuple[Any, Any]:
    return cri_grpc.RuntimeServiceStub(channel), cri_grpc.ImageServiceStub(channel)


class Shim:
    """The shim's server in this process, its runtime, and a channel to it."""

    def __init__(self, folder: Path, runtime: Any) -> None:
        self.folder = folder
        self.socket, self.runtime_socket = folder / "cri.sock", folder / "runtime.sock"
        self.runtime = runtime
        self.metrics = Metrics()
        self._stop = asyncio.Event()

    async def start(self, serves: Callable[[], bool] | None = None) -> None:
        """Start it and return once it serves: by default once something is at its path."""
        roots = Roots(self.folder / "sys", self.folder / "dev")
        records = Records(self.folder / "state", self.folder / "run")
        interceptors = Interceptors(Rules("n1"), records, roots)
        self.check = DeviceCheck(records, roots, self.folder / "run", self.metrics, stops=False)
        sockets = f"unix://{self.socket}", f"unix://{self.runtime_socket}"
        self._task = asyncio.create_task(
            serve(*sockets, interceptors, self.check, self.metrics.observe, self._stop, Systemd())
        )
        is_served = serves or self.socket.exists
        await until(lambda: is_served() or self._task.done())

    async def stop(self) -> None:
        self._stop.set()
        await self._task

    def count(self, method: str, code: str) -> float | None:
        return self.metrics.registry.get_sample_value("mooring_cri_calls_total", {"method": method, "code": code})
