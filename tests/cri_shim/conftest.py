"""A kubelet's requests and a runtime with configured answers, both by the independent CRI stubs; a pod with two VFs."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pytest
from cri_api.v1 import api_pb2 as cri

from cri_shim.plan.inject import Rules
from mooring.records.ledger import LedgerEntry, Netns, Original, dump_ledger_entry, ledger_name
from tests.cri_shim.served import OPTIONS, Shim

UID = "8c2f0001-0000-4000-8000-000000000001"
SANDBOX = "5a5a"
NODE = "n1"
FIRST, SECOND = "0000:04:00.5", "0000:04:00.6"
REQUEST = [{"min_tx_rate": 15000, "max_tx_rate": 20000}, {"network": "rail0", "containers": ["trainer"]}]
ASSIGNMENT = {
    "v": 1,
    "uid": UID,
    "node": NODE,
    "vfs": [
        {
            "pf": "enp4s0f0",
            "vf": 3,
            "pci": FIRST,
            "link": "ethernet",
            "network": "rail0",
            "min_tx_rate": 15000,
            "max_tx_rate": 20000,
        },
        {
            "pf": "enp4s0f0",
            "vf": 4,
            "pci": SECOND,
            "link": "ethernet",
            "network": "rail0",
            "containers": ["trainer"],
        },
    ],
}
LIMITED = cri.LinuxContainerResources(memory_limit_in_bytes=1 << 30)
ANNOTATIONS = {"mooring.dev/interfaces": json.dumps(REQUEST), "mooring.dev/assignment": json.dumps(ASSIGNMENT)}


class Make:
    """Builders of requests; what they make carries fields that the shim's own slice of CRI does not know."""

    uid, sandbox, node, first, second = UID, SANDBOX, NODE, FIRST, SECOND
    request, assignment, annotations = REQUEST, ASSIGNMENT, ANNOTATIONS

    @staticmethod
    def config(annotations: Mapping[str, str] | None = None, uid: str = UID, *, host_network: bool = False) -> Any:
        options = cri.NamespaceOption(network=cri.NODE if host_network else cri.POD, pid=cri.CONTAINER)
        return cri.PodSandboxConfig(
            metadata=cri.PodSandboxMetadata(name="web", uid=uid, namespace="ml", attempt=2),
            hostname="web",
            log_directory="/var/log/pods/ml_web",
            labels={"app": "web"},
            annotations=dict(annotations or {}),
            linux=cri.LinuxPodSandboxConfig(
                cgroup_parent="/kubepods",
                security_context=cri.LinuxSandboxSecurityContext(namespace_options=options, readonly_rootfs=True),
            ),
        )

    def run(self, annotations: Mapping[str, str] | None = None, handler: str = "", **more: Any) -> bytes:
        request = cri.RunPodSandboxRequest(config=self.config(annotations, **more), runtime_handler=handler)
        return bytes(request.SerializeToString())

    def create(self, annotations: Mapping[str, str] | None = None, container: str = "trainer", **config: Any) -> bytes:
        request = cri.CreateContainerRequest(
            pod_sandbox_id=SANDBOX,
            config=cri.ContainerConfig(
                metadata=cri.ContainerMetadata(name=container, attempt=1),
                image=cri.ImageSpec(image="busybox"),
                command=["sleep", "1"],
                mounts=[cri.Mount(container_path="/data", host_path="/srv/data", readonly=True)],
                labels={"app": "web"},
                **({"linux": cri.LinuxContainerConfig(resources=LIMITED)} | config),
            ),
            sandbox_config=self.config(annotations),
        )
        return bytes(request.SerializeToString())

    @staticmethod
    def annotations_with(**assignment: Any) -> dict[str, str]:
        """The pod's annotations with fields of its assignment replaced."""
        return ANNOTATIONS | {"mooring.dev/assignment": json.dumps(ASSIGNMENT | assignment)}

    @staticmethod
    def entry(pci: str, **replaced: Any) -> LedgerEntry:
        fields: dict[str, Any] = {
            "pci": pci,
            "pf": "enp4s0f0",
            "vf": 3,
            "phase": "held",
            "boot": "b",
            "uid": UID,
            "pod": "ml/web",
            "container": SANDBOX,
            "ifname": "net1",
            "netns": Netns("/run/netns/x", 7),
            "original": Original("enp4s0f0v3"),
            "addresses": ("10.0.0.2/24",),
        }
        return LedgerEntry(**(fields | replaced))

    def write_entry(self, state: Path, pci: str, **replaced: Any) -> None:
        path = state / ledger_name(pci)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dump_ledger_entry(self.entry(pci, **replaced)))


UNLIMITED = (("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1))
DETAILS = ("grpc-status-details-bin", b"\x08\x05\x12\x07missing\xff")
LONG = "no such thing: " + "x" * 100_000
FUTURE = "/runtime.v1.RuntimeService/StreamFutureThings"


@dataclass(slots=True)
class CallRecord:
    """The requests that the runtime received, raw, and what it noticed about each call."""

    raw: list[tuple[str, bytes]] = field(default_factory=list)
    metadata: list[tuple[str, Any]] = field(default_factory=list)
    remaining: list[float | None] = field(default_factory=list)
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)
    written: int = 0


class Runtime:
    """Answers by method; `listed` are the pods that ListPodSandbox shows, ``events`` how many events it sends."""

    future, details, long = FUTURE, DETAILS, LONG

    def __init__(self) -> None:
        self.seen = CallRecord()
        self.listed: list[str] = []
        self.events = 3
        self.event_bytes = 0
        self._server: Any = None

    async def start(self, path: Path) -> None:
        self._server = grpc.aio.server(
            options=(*UNLIMITED, ("grpc.max_metadata_size", 1 << 20), ("grpc.absolute_max_metadata_size", 1 << 20))
        )
        self._server.add_generic_rpc_handlers((self,))
        path.unlink(missing_ok=True)
        self._server.add_insecure_port(f"unix://{path}")
        await self._server.start()

    async def stop(self) -> None:
        await self._server.stop(None)

    def service(self, details: Any) -> Any:
        """Take every method by its bytes, so that what arrives can be compared bit by bit."""
        name = details.method.rpartition("/")[2]
        if details.method == FUTURE or name == "GetContainerEvents":

            async def stream(raw: bytes, context: Any) -> AsyncIterator[bytes]:
                self._note(name, raw, context)
                async for answer in self.get_container_events(context):
                    yield answer

            return grpc.unary_stream_rpc_method_handler(stream)

        async def once(raw: bytes, context: Any) -> bytes:
            self._note(name, raw, context)
            return await self._once(name, raw, context)

        return grpc.unary_unary_rpc_method_handler(once)

    def _note(self, name: str, raw: bytes, context: Any) -> None:
        self.seen.raw.append((name, raw))
        self.seen.metadata.extend(context.invocation_metadata())
        self.seen.remaining.append(context.time_remaining())

    async def _once(self, name: str, raw: bytes, context: Any) -> bytes:
        if name == "Version":
            await context.send_initial_metadata((("header", "first"),))
            context.set_trailing_metadata((("trailer-bin", b"\x00\xff"),))
            return bytes(cri.VersionResponse(runtime_name="fake", runtime_version="1").SerializeToString())
        if name == "Status":
            await context.abort(grpc.StatusCode.NOT_FOUND, LONG, (DETAILS, ("trailer", "last")))
        if name == "PodSandboxStatus":
            await context.send_initial_metadata((("header", "first"),))
            await context.abort(grpc.StatusCode.INTERNAL, "failed after all")
        if name == "ContainerStatus":
            await context.abort(grpc.StatusCode.CANCELLED, "the runtime gave up")
        if name == "ExecSync":
            await self._hang()
        if name == "ListPodSandbox":
            items = [cri.PodSandbox(id=uid, metadata=cri.PodSandboxMetadata(uid=uid)) for uid in self.listed]
            return bytes(cri.ListPodSandboxResponse(items=items).SerializeToString())
        if name == "ListContainers":
            return raw
        return b""

    async def _hang(self) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            self.seen.cancelled.set()

    async def get_container_events(self, context: Any) -> AsyncIterator[bytes]:
        await context.send_initial_metadata((("header", "stream"),))
        for number in range(self.events):
            event = cri.ContainerEventResponse(container_id=str(number) + "." * self.event_bytes)
            yield event.SerializeToString()
            self.seen.written = number + 1
        if self.events == 0:
            await self._hang()
        context.set_trailing_metadata((("trailer", "stream"),))


@pytest.fixture
def make() -> Make:
    return Make()


@pytest.fixture
def rules() -> Rules:
    return Rules(NODE, frozenset({"runc"}))


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """A folder with ``sys`` and ``dev`` in which the two VFs have devices; as plain files, which any user can make."""
    for number, pci in enumerate((FIRST, SECOND), start=3):
        uverbs = tmp_path / f"sys/bus/pci/devices/{pci}/infiniband_verbs/uverbs{number}"
        uverbs.mkdir(parents=True)
        (uverbs / "ibdev").write_text(f"mlx5_{number}\n")
        (uverbs / "dev").write_text(f"231:{192 + number}\n")
    (tmp_path / "dev/infiniband").mkdir(parents=True)
    for name in ("uverbs3", "uverbs4", "rdma_cm"):
        (tmp_path / "dev/infiniband" / name).touch()
    return tmp_path


@pytest.fixture
def fake_runtime() -> Runtime:
    return Runtime()


@pytest.fixture
async def shim(host: Path, fake_runtime: Any) -> AsyncIterator[Shim]:
    shim = Shim(host, fake_runtime)
    await shim.runtime.start(shim.runtime_socket)
    await shim.start()
    yield shim
    await shim.stop()
    await shim.runtime.stop()


@pytest.fixture
async def channel(shim: Shim) -> AsyncIterator[Any]:
    async with grpc.aio.insecure_channel(f"unix://{shim.socket}", options=OPTIONS) as channel:
        yield channel
