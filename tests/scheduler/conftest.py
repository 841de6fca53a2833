"""Pods, nodes and inventories to schedule with, and a machine whose invariants are checked when a test ends."""

import itertools
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Protocol, TypeVar

import msgspec
import pytest

from devcluster.apiserver.serve import ApiServer
from mooring.annotations.inventory import Inventory, Pf, dump_inventory
from mooring.kube.access import Access, load_access
from mooring.kube.client import Client
from scheduler.cycle.preemption.select_victims import PORTION
from scheduler.kube.objects import Node, Pod
from scheduler.pending.groups.pending_groups import GroupOptions
from scheduler.state.machine import Machine
from tests.scheduler.decisions import documents
from tests.scheduler.decisions.documents import node_status, pf
from tests.scheduler.group_life import life as life
from tests.scheduler.group_scene import GroupScene
from tests.scheduler.volume_store import Store
from tests.support.relay import Relay

MakePf = Callable[..., Pf]
MakeNode = Callable[..., Node]
MakePod = Callable[..., Pod]
BOOT = documents.BOOT
SceneType = TypeVar("SceneType", bound=GroupScene)
# Fields of a pod or a node beside the defaults.
Json = dict[str, Any]


class MakeScene(Protocol):
    def __call__(self, kind: type[SceneType], *, portion: int = ..., **options: Any) -> SceneType: ...


@pytest.fixture
def make_pf() -> MakePf:
    """Make a PF: by default Ethernet, 100 Gb/s, four VFs, all settings possible, none allowed."""

    return lambda index=0, vfs=4, **fields: pf(index, vfs, **{"network": "rail0", "pcie": (), **fields})


@pytest.fixture
def make_node() -> MakeNode:
    """Make a Ready node with 8 cpus, 16 GiB and capacity for 110 pods; ``rates`` is what its inventory says of them."""

    def make(
        name: str = "n1", pfs: tuple[Pf, ...] = (), *, ready: bool = True, rates: bool = True, **fields: Any
    ) -> Node:
        annotations = {"mooring.dev/inventory": dump_inventory(Inventory(BOOT, pfs, rates=rates))} if pfs else {}
        annotations |= fields.get("annotations", {})
        metadata = {"name": name, "annotations": annotations, "labels": fields.get("labels", {})}
        status = node_status(fields.get("allocatable", {}), ready=ready, boot=fields.get("boot", BOOT))
        return msgspec.convert({"metadata": metadata, "spec": fields.get("spec", {}), "status": status}, Node)

    return make


@pytest.fixture
def make_pod() -> MakePod:
    """Make a pod of our scheduler, each younger than the one before; ``request`` is its mooring.dev/interfaces."""
    serial = itertools.count()

    def make(name: str = "", request: object = None, node: str | None = None, **fields: Any) -> Pod:
        number = next(serial)
        annotations = {} if request is None else {"mooring.dev/interfaces": msgspec.json.encode(request).decode()}
        metadata: Json = {
            "name": name or f"p{number}",
            "namespace": "default",
            "uid": f"uid-{number}",
            "creationTimestamp": f"2026-01-01T00:{number // 60 % 60:02}:{number % 60:02}Z",
        }
        metadata |= {**fields.get("metadata", {}), "annotations": annotations | fields.get("annotations", {})}
        spec: Json = {"schedulerName": "mooring", "nodeName": node, "containers": [{"name": "c"}]}
        spec |= fields.get("spec", {})
        return msgspec.convert({"metadata": metadata, "spec": spec, "status": fields.get("status", {})}, Pod)

    return make


@pytest.fixture
def machine() -> Iterator[Machine]:
    """Give a machine; when the test ends, what it keeps is proved against what it is derived from."""
    machine = Machine("mooring")
    yield machine
    machine.check()


@pytest.fixture
def make_scene(make_node: MakeNode, make_pf: MakePf, make_pod: MakePod) -> Iterator[MakeScene]:
    """Make scenes, of a kind and with options for groups; their machines are checked when the test ends."""
    scenes = list[GroupScene]()

    def make(kind: type[SceneType], *, portion: int = PORTION, **options: Any) -> SceneType:
        machine = Machine("mooring", group_options=GroupOptions(**options), portion=portion)
        scene = kind(machine, make_node, make_pf, make_pod)
        scene.options = GroupOptions(**options)
        scenes.append(scene)
        return scene

    yield make
    for scene in scenes:
        scene.machine.check()


@pytest.fixture
def scene(make_scene: MakeScene) -> GroupScene:
    return make_scene(GroupScene)


@pytest.fixture
def store(machine: Machine, make_node: MakeNode, make_pf: MakePf, make_pod: MakePod) -> Store:
    """Give a store with class late, which waits for the first consumer."""
    store = Store(machine, make_node, make_pf, make_pod)
    store.storage_class()
    return store


@pytest.fixture(params=["devcluster", pytest.param("real", marks=pytest.mark.apiserver)])
async def server(request: pytest.FixtureRequest) -> AsyncIterator[ApiServer | Relay]:
    """Serve an empty cluster: devcluster's server, and once more a real one behind a relay that can fail."""
    if request.param == "devcluster":
        async with ApiServer() as server:
            yield server
        return
    async with Relay(load_access(str(request.getfixturevalue("own_server")))) as relay:
        await relay.empty()
        yield relay


@pytest.fixture
async def client(server: ApiServer) -> AsyncIterator[Client]:
    """Talk to the server; a request is given up after two seconds."""
    async with Client(Access(server.url), timeout_s=2.0) as client:
        yield client
