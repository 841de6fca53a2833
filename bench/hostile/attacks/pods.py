"""What a tenant can create: pods of his namespace, each up to the API server's 1.5 MiB, some with a node preset."""

import json
from collections.abc import AsyncIterator

from bench.hostile.attack import attack
from bench.hostile.stage import Stage
from bench.loads import scheduler_load as load
from bench.loads.scheduler_load import Json
from mooring import names

# The API server refuses more for all annotations of an object together.
_LARGEST = 262_144 - 100
_NODE = load.node_name(0)


def tenants_pod(number: int, spec: Json | None = None, request: str = "[{}]", requests: Json | None = None) -> Json:
    pod = load.pod(number, [], "1m", spec or {})
    pod["metadata"]["name"] = f"tenants-{number}"
    pod["metadata"]["annotations"] = {names.REQUEST: request}
    if requests is not None:
        pod["spec"]["containers"][0]["resources"] = {"requests": requests}
    return pod


def _invented(pod: int, count: int) -> Json:
    return {f"tenant-{pod}.example/{number}": "1" for number in range(count)}


@attack("resources-of-bound-pods", "six pods with a node preset request 10,000 invented resources each")
async def resources_of_bound_pods(stage: Stage) -> AsyncIterator[None]:
    """Nothing is to be kept for each of them on each node."""
    preset: Json = {"nodeName": _NODE}
    async with stage.pods(*(tenants_pod(number, preset, requests=_invented(number, 10_000)) for number in range(6))):
        yield


@attack("resources-of-waiting-pods", "six waiting pods request 10,000 invented resources each")
async def resources_of_waiting_pods(stage: Stage) -> AsyncIterator[None]:
    """They are refused in words."""
    async with stage.pods(*(tenants_pod(number, requests=_invented(number, 10_000)) for number in range(6))):
        yield


@attack("resources-few", "twenty waiting pods request 50 invented resources each")
async def resources_few(stage: Stage) -> AsyncIterator[None]:
    """Each is within the bounds."""
    async with stage.pods(*(tenants_pod(number, requests=_invented(number, 50)) for number in range(20))):
        yield


# More than any cache of the scheduler holds at 1,000 nodes: 500 shapes of pods, 1,024 requests.
_DIFFERENT = 1500


@attack("pods-that-differ", "1,500 waiting pods each request another amount, and name another image", lasts_s=2.0)
async def pods_that_differ(stage: Stage) -> AsyncIterator[None]:
    """What is kept for pods that are alike is kept for each of them."""
    specs = [
        {"containers": [{"name": "c", "image": f"registry.example/app:{number}", "resources": _cpu(100 + number)}]}
        for number in range(_DIFFERENT)
    ]
    async with stage.pods(*(tenants_pod(number, spec) for number, spec in enumerate(specs))):
        yield


def _cpu(amount: int) -> Json:
    return {"requests": {"cpu": str(amount)}}


@attack("rates", "a pod requests 23 rates that nearly fill each node", lasts_s=10.0)
async def rates(stage: Stage) -> AsyncIterator[None]:
    """Whether three fit on a PF hangs on each node's last megabits: a search, and no node's result is another's."""
    wanted = [{"min_tx_rate": 33_250 + 7 * (number % 11)} for number in range(23)]
    async with stage.pods(tenants_pod(0, request=json.dumps(wanted))):
        yield


@attack("rates-64", "three pods request 64 different rates each", lasts_s=10.0)
async def rates_64(stage: Stage) -> AsyncIterator[None]:
    """As many interfaces as there may be."""
    requests = [
        ",".join(f'{{"min_tx_rate":{11_000 + 37 * pod + 53 * number % 1900}}}' for number in range(64))
        for pod in range(3)
    ]
    async with stage.pods(*(tenants_pod(number, request=f"[{wanted}]") for number, wanted in enumerate(requests))):
        yield


@attack("interfaces-differ", "three pods request 64 VFs each that differ in everything that PFs are asked about")
async def interfaces_differ(stage: Stage) -> AsyncIterator[None]:
    """By their rates, by VLAN, and by patterns for names."""
    kinds: list[list[Json]] = [
        [{"min_tx_rate": 11_000 + number, "max_tx_rate": 50_000 + number} for number in range(64)],
        [{"vlan": number + 1} for number in range(64)],
        [{"pf": f"{'*e*n*p[1-8]*s*0*f' * 3}{number}*"} for number in range(64)],
    ]
    async with stage.pods(*(tenants_pod(number, request=json.dumps(wanted)) for number, wanted in enumerate(kinds))):
        yield


@attack("rates-too-large", "three pods request 64 different rates that are more than any node has", lasts_s=10.0)
async def rates_too_large(stage: Stage) -> AsyncIterator[None]:
    """They wait for victims that cannot help."""
    requests = [[{"min_tx_rate": 13_000 + 64 * pod + number} for number in range(64)] for pod in range(3)]
    async with stage.pods(*(tenants_pod(number, request=json.dumps(wanted)) for number, wanted in enumerate(requests))):
        yield


@attack("selectors", "a pod has 20,000 keys in its nodeSelector")
async def selectors(stage: Stage) -> AsyncIterator[None]:
    """Each would be compared on each node."""
    async with stage.pods(tenants_pod(0, {"nodeSelector": {f"example.com/{number}": "x" for number in range(20_000)}})):
        yield


@attack("selectors-999", "twenty pods have 999 requirements each on labels that no node has")
async def selectors_999(stage: Stage) -> AsyncIterator[None]:
    """Within the bounds, and they hold on every node."""
    async with stage.pods(
        *(tenants_pod(number, {"affinity": {"nodeAffinity": _absent(number)}}) for number in range(20))
    ):
        yield


def _absent(pod: int) -> Json:
    keys = (f"tenant-{pod}.example/{number}" for number in range(999))
    expressions = [{"key": key, "operator": "DoesNotExist"} for key in keys]
    terms = {"nodeSelectorTerms": [{"matchExpressions": expressions}]}
    return {"requiredDuringSchedulingIgnoredDuringExecution": terms}


@attack("preferences", "a pod prefers nodes by 5,000 terms")
async def preferences(stage: Stage) -> AsyncIterator[None]:
    """Each would be scored on each node."""
    keys = (f"tenant.example/{number}" for number in range(5000))
    terms = [
        {"weight": 1, "preference": {"matchExpressions": [{"key": key, "operator": "DoesNotExist"}]}} for key in keys
    ]
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms}}
    async with stage.pods(tenants_pod(0, {"affinity": affinity})):
        yield


@attack("pod-affinity", "a pod has 3,000 terms of affinity to other pods")
async def pod_affinity(stage: Stage) -> AsyncIterator[None]:
    """Each with a selector and a topology of its own."""
    terms = [
        {
            "weight": 1,
            "podAffinityTerm": {"labelSelector": {"matchLabels": {f"k{number}": "v"}}, "topologyKey": f"t{number}"},
        }
        for number in range(3000)
    ]
    affinity = {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms}}
    async with stage.pods(tenants_pod(0, {"affinity": affinity})):
        yield


@attack("anti-affinity-of-bound-pods", "three pods with a node preset have 2,000 terms of anti-affinity each")
async def anti_affinity_of_bound_pods(stage: Stage) -> AsyncIterator[None]:
    """Every later pod is compared with the terms of those that run."""
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": _terms(2000)}}
    async with stage.pods(*(tenants_pod(number, {"affinity": affinity, "nodeName": _NODE}) for number in range(3))):
        yield


def _terms(count: int) -> list[Json]:
    return [
        {"labelSelector": {"matchLabels": {f"k{number}": "v"}}, "topologyKey": f"t{number}"} for number in range(count)
    ]


@attack("spread", "a pod has 3,000 topology spread constraints")
async def spread(stage: Stage) -> AsyncIterator[None]:
    """Each counts pods by domains of its own."""
    constraints = [
        {"maxSkew": 1, "topologyKey": f"t{number}", "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {}}
        for number in range(3000)
    ]
    async with stage.pods(tenants_pod(0, {"topologySpreadConstraints": constraints})):
        yield


@attack("tolerations", "a pod has 20,000 tolerations")
async def tolerations(stage: Stage) -> AsyncIterator[None]:
    """Each would be compared with each taint."""
    tolerated = [{"key": f"example.com/{number}", "operator": "Exists"} for number in range(20_000)]
    async with stage.pods(tenants_pod(0, {"tolerations": tolerated})):
        yield


@attack("host-ports", "a pod with a node preset has 10,000 host ports, and one waits with as many")
async def host_ports(stage: Stage) -> AsyncIterator[None]:
    """Each would be compared with each of the other's."""
    ports = [{"containerPort": number, "hostPort": number} for number in range(1, 10_001)]
    containers: Json = {"containers": [{"name": "c", "image": "registry.example/app:1", "ports": ports}]}
    async with stage.pods(tenants_pod(0, {**containers, "nodeName": _NODE}), tenants_pod(1, containers)):
        yield


@attack("duplicate-key", "the last of 24,000 keys of a pod's request, and of another's assignment, is there twice")
async def duplicate_key(stage: Stage) -> AsyncIterator[None]:
    """They are read whole to see that."""
    keys = ",".join(f'"{number}":0' for number in range(24_000))
    text = f'[{{{keys},"23999":0}}]'
    bound = tenants_pod(1, {"nodeName": _NODE})
    bound["metadata"]["annotations"] = {names.ASSIGNMENT: text[1:-1]}
    async with stage.pods(tenants_pod(0, request=text), bound):
        yield


@attack("nesting", "a pod's request is 262,000 opening brackets")
async def nesting(stage: Stage) -> AsyncIterator[None]:
    """No reader may recurse into it."""
    async with stage.pods(tenants_pod(0, request="[" * _LARGEST)):
        yield


@attack("quantities", "1,100 pods with a node preset request 8 Pi of memory each", lasts_s=2.0)
async def quantities(stage: Stage) -> AsyncIterator[None]:
    """Together more than 64 bits hold."""
    preset: Json = {"nodeName": _NODE}
    async with stage.pods(*(tenants_pod(number, preset, requests={"memory": "8Pi"}) for number in range(1100))):
        yield


@attack("digits", "a pod requests an amount of 100,000 digits")
async def digits(stage: Stage) -> AsyncIterator[None]:
    """An integer of so many digits takes quadratic time."""
    async with stage.pods(tenants_pod(0, request=f'[{{"min_tx_rate":{"9" * 100_000}}}]')):
        yield
