"""What a tenant or a node can say without being refused: objects just within the bounds, and many of them at once."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from bench.hostile.attack import attack
from bench.hostile.attacks.inventories import pf, write_inventory
from bench.hostile.attacks.inventories import published as published_by_node
from bench.hostile.attacks.pods import tenants_pod
from bench.hostile.stage import NODES, Stage
from bench.loads import scheduler_load as load
from bench.loads.scheduler_load import Json
from mooring import names
from mooring.gpu.inventory import Gpu, GpuInventory, dump_gpu_inventory

_NODE = load.node_name(0)
_PRESET: Json = {"nodeName": _NODE}
_HOST = "kubernetes.io/hostname"
_CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
_VOLUMES = "/api/v1/persistentvolumes"
_CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
_BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
_PRIORITIES = "/apis/scheduling.k8s.io/v1/priorityclasses"


@asynccontextmanager
async def _objects(stage: Stage, path: str, *documents: Json) -> AsyncIterator[None]:
    """Create objects, and delete them at the end."""
    for document in documents:
        await stage.create(path, document)
    try:
        yield
    finally:
        await stage.delete(*(f"{path}/{document['metadata']['name']}" for document in documents))


def _differs(count: int, key: str = "tier") -> list[Json]:
    return [{"key": key, "operator": "NotIn", "values": [f"x{number}"]} for number in range(count)]


@attack("preferences-499", "twenty pods prefer nodes by 499 terms each")
async def preferences(stage: Stage) -> AsyncIterator[None]:
    """Each holds on every node."""

    def affinity(pod: int) -> Json:
        keys = (f"tenant-{pod}.example/{number}" for number in range(499))
        terms = [
            {"weight": 1, "preference": {"matchExpressions": [{"key": key, "operator": "DoesNotExist"}]}}
            for key in keys
        ]
        return {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms}}}

    async with stage.pods(*(tenants_pod(number, affinity(number)) for number in range(20))):
        yield


@attack("pod-affinity-64", "twenty pods have 64 terms of affinity to other pods, each of a topology of its own")
async def pod_affinity(stage: Stage) -> AsyncIterator[None]:
    """Each term selects the innocents too."""

    def affinity(pod: int) -> Json:
        terms = [
            {"weight": 1, "podAffinityTerm": {"labelSelector": {}, "topologyKey": f"t{pod}-{number}"}}
            for number in range(64)
        ]
        return {"affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms}}}

    async with stage.pods(*(tenants_pod(number, affinity(number)) for number in range(20))):
        yield


@attack("anti-affinity-everywhere", "300 pods on one node keep away from all pods of all namespaces, by 64 terms each")
async def anti_affinity(stage: Stage) -> AsyncIterator[None]:
    """Every later pod is compared with 19,200 terms, and each of them holds."""

    def terms(pod: int) -> Json:
        listed = [
            {
                "namespaceSelector": {},
                "topologyKey": _HOST,
                "labelSelector": {"matchExpressions": [{"key": f"k{pod}-{number}", "operator": "DoesNotExist"}]},
            }
            for number in range(64)
        ]
        return {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": listed}}}

    async with stage.pods(*(tenants_pod(number, {**terms(number), **_PRESET}) for number in range(300))):
        yield


@attack("spread-64", "twenty pods have 64 topology spread constraints each")
async def spread(stage: Stage) -> AsyncIterator[None]:
    """Each by the nodes' names, which are a thousand domains."""

    def constraints(pod: int) -> list[Json]:
        return [
            {
                "maxSkew": 1 + number,
                "topologyKey": _HOST,
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchExpressions": _differs(15, f"k{pod}-{number}")},
            }
            for number in range(64)
        ]

    pods = (tenants_pod(number, {"topologySpreadConstraints": constraints(number)}) for number in range(20))
    async with stage.pods(*pods):
        yield


@attack("tolerations-1000", "twenty pods have 1,000 tolerations each, with the two that an API server adds")
async def tolerations(stage: Stage) -> AsyncIterator[None]:
    """None of them is for a taint that is there."""

    def tolerated(pod: int) -> list[Json]:
        return [{"key": f"tenant-{pod}.example/{number}", "operator": "Exists"} for number in range(998)]

    async with stage.pods(*(tenants_pod(number, {"tolerations": tolerated(number)}) for number in range(20))):
        yield


@attack("host-ports-4096", "40 pods on one node have 4,096 host ports each, and five more wait with as many")
async def host_ports(stage: Stage) -> AsyncIterator[None]:
    """Each pod on an address of its own."""

    def ports(pod: int) -> Json:
        listed = [{"containerPort": number, "hostPort": number, "hostIP": f"10.0.0.{pod}"} for number in range(1, 4097)]
        return {"containers": [{"name": "c", "image": "registry.example/app:1", "ports": listed}]}

    bound = (tenants_pod(number, {**ports(number), **_PRESET}) for number in range(40))
    waiting = (tenants_pod(number, ports(number)) for number in range(40, 45))
    async with stage.pods(*bound, *waiting):
        yield


@attack("claims-with-selectors", "five pods want 8 volumes each, by selectors of 100 expressions, and one too large")
async def claims(stage: Stage) -> AsyncIterator[None]:
    """100 volumes could be any of them, on every node."""
    late: Json = {"provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer"}
    volumes = [_volume(number) for number in range(100)] + [_volume(100, where="elsewhere")]
    wanted = [_claim(f"claim-{pod}-{number}", "1Gi") for pod in range(5) for number in range(8)]
    pods = [
        tenants_pod(pod, {"volumes": [_uses(f"claim-{pod}-{number}") for number in range(8)] + [_uses("too-large")]})
        for pod in range(5)
    ]
    async with (
        _objects(stage, _CLASSES, {"metadata": {"name": "late"}, **late}),
        _objects(stage, _VOLUMES, *volumes),
        _objects(stage, _CLAIMS, *wanted, _claim("too-large", "9Gi")),
        stage.pods(*pods),
    ):
        yield


def _volume(number: int, where: str = "") -> Json:
    spec: Json = {
        "capacity": {"storage": "2Gi"},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "late",
        "hostPath": {"path": "/x"},
    }
    if where:
        on = [{"matchExpressions": [{"key": _HOST, "operator": "In", "values": [where]}]}]
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": on}}
    labels = {"tier": "any"}
    return {"metadata": {"name": f"v-{number}", "labels": labels}, "spec": spec, "status": {"phase": "Available"}}


def _claim(name: str, size: str) -> Json:
    spec: Json = {
        "storageClassName": "late",
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": size}},
        "selector": {"matchExpressions": _differs(100)},
    }
    return {"metadata": {"name": name}, "spec": spec, "status": {"phase": "Pending"}}


def _uses(claim: str) -> Json:
    return {"name": claim, "persistentVolumeClaim": {"claimName": claim}}


@attack("budgets", "a namespace has 500 disruption budgets, and pods that preempt look at 100 pods of as many kinds")
async def budgets(stage: Stage) -> AsyncIterator[None]:
    """Each budget selects each of them."""
    async with _preempting(stage, [_budget(number, 60) for number in range(500)]):
        yield


@attack("budgets-3000", "a namespace has 3,000 disruption budgets of one expression each, and pods preempt there")
async def many_budgets(stage: Stage) -> AsyncIterator[None]:
    """As many as count, and more."""
    async with _preempting(stage, [_budget(number, 1) for number in range(3000)]):
        yield


def _budget(number: int, expressions: int) -> Json:
    selector = {"matchExpressions": _differs(expressions)}
    return {
        "metadata": {"name": f"budget-{number}"},
        "spec": {"selector": selector, "maxUnavailable": 0},
        "status": {"disruptionsAllowed": 0},
    }


@asynccontextmanager
async def _preempting(stage: Stage, listed: list[Json]) -> AsyncIterator[None]:
    """Let five pods preempt on a node with 100 pods of different labels, beside these budgets."""
    classes: list[Json] = [{"metadata": {"name": name}, "value": value} for name, value in (("low", -1), ("high", 1))]
    below: Json = {**_PRESET, "priorityClassName": "low"}
    low = [tenants_pod(number, below, requests={"cpu": "600m"}) for number in range(100)]
    for number, one in enumerate(low):
        one["metadata"]["labels"] = {"kind": f"k{number}"}
    there = {"nodeSelector": {_HOST: _NODE}, "priorityClassName": "high"}
    high = [tenants_pod(number, there, requests={"cpu": f"{number - 60}"}) for number in range(100, 105)]
    async with (
        _objects(stage, _PRIORITIES, *classes),
        _objects(stage, _BUDGETS, *listed),
        stage.pods(*low),
        stage.pods(*high),
    ):
        yield


@attack("inventory-out", "a node says every second that 4,096 VFs are out, each for a reason of its own", lasts_s=3.0)
async def out(stage: Stage) -> AsyncIterator[None]:
    """As many as there may be, on 16 PFs, in 119,000 of 131,072 characters."""

    def text(version: int) -> str:
        pfs = []
        for number in range(16):
            entries: list[Json] = [
                {"vfs": str(index), "why": f"{version}{number:x}{index:02x}"} for index in range(256)
            ]
            pfs.append(pf(number, "0-255", entries))
        return json.dumps({"v": 1, "boot": load.BOOT, "pfs": pfs}, separators=(",", ":"))

    async with published_by_node(stage, text(0)):
        for version in range(1, 8):
            await asyncio.sleep(1)
            await write_inventory(stage, text(version))
        yield


_GPU_NODES = 10


@attack(
    "gpus-that-differ", "pods request 60 GPUs of ten nodes with 64, each under the switch of another PF", lasts_s=10.0
)
async def gpus(stage: Stage) -> AsyncIterator[None]:
    """No two choices leave the same to the VFs, no two nodes are alike, and none fits: of 64 PFs six are down."""
    # A node that was created a moment ago is tainted.
    anywhere: Json = {"tolerations": [{"operator": "Exists"}]}
    pods = [tenants_pod(number, anywhere, request=json.dumps([{"min_tx_rate": 1000}] * 60)) for number in range(5)]
    for one in pods:
        one["metadata"]["annotations"][f"{names.REQUEST_OF}gpu"] = json.dumps({"count": 60, "vfs": "switch"})
        one["spec"]["containers"][0].setdefault("resources", {})["limits"] = {"mooring.dev/gpu": "60"}
    async with AsyncExitStack() as nodes:
        for number in range(_GPU_NODES):
            await nodes.enter_async_context(_gpu_node(stage, number))
        async with stage.pods(*pods):
            yield


@asynccontextmanager
async def _gpu_node(stage: Stage, node: int) -> AsyncIterator[None]:
    """Let a node have 64 GPUs, each beside a PF of which a node offers other rates than the next one."""
    buses = [f"0000:{number:02x}:01.0" for number in range(64)]
    pfs = [
        pf(number, "0-31", [])
        | {"pcie": [bus], "up": (number + node) % 11 != 0, "offer_mbps": 90_000 + 64 * node + number}
        for number, bus in enumerate(buses)
    ]
    listed = tuple(
        Gpu(
            f"0000:{number + 128:02x}:00.0",
            f"GPU-{number:08x}-{node:04x}-4000-8000-000000000000",
            "nvidia",
            pcie=(bus,),
        )
        for number, bus in enumerate(buses)
    )
    count = {"mooring.dev/gpu": "64"}
    inventory = json.dumps({"v": 1, "boot": load.BOOT, "pfs": pfs})
    async with published_by_node(stage, inventory, f"gpus-{node}") as name:
        annotations = {f"{names.INVENTORY_OF}gpu": dump_gpu_inventory(GpuInventory(listed))}
        await stage.patch(f"{NODES}/{name}", {"metadata": {"annotations": annotations}})
        await stage.patch(f"{NODES}/{name}/status", {"status": {"allocatable": count, "capacity": count}})
        yield
