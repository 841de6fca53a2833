"""Single pods on small clusters: plain ones, those with units, and those whose rates are changed.

Few nodes with little room, so that pods wait, share PFs, and preempt each other.
"""

import sys
from collections.abc import Callable
from functools import cache
from importlib.metadata import EntryPoint
from pathlib import Path
from random import Random
from typing import Any

from mooring.annotations.inventory import Pf
from mooring.parsing import dump
from scheduler.constraints.kinds import Kinds
from scheduler.placement.gpus import gpu_kind
from scheduler.server.startup import GROUP, load_kinds
from tests.scheduler.decisions.documents import ASKED_FPGAS, ASKED_GPUS, HOST, ZONE, Json, Node, pf, pod
from tests.scheduler.decisions.replay import Replay

_FPGA_PACKAGE = Path(__file__).parents[3] / "docs/examples/fpga"
_APPS, _ZONES, _DISKS = ("x", "y", "z"), ("a", "b", "c"), ("ssd", "hdd")
_RATES = (0, 0, 5_000, 10_000, 20_000, 30_000, 45_000)
_PRIORITIES = (0, 0, 10, 10, 100)


@cache
def kinds() -> Kinds:
    """Return GPUs and the FPGAs of the documentation's example."""
    sys.path.append(str(_FPGA_PACKAGE))
    point = EntryPoint("fpga", "mooring_fpga.constraint:Fpgas", GROUP)
    return load_kinds([point], built_in_kinds=(gpu_kind(),))


def plain_pods(random: Random) -> list[str]:
    """Pods with VFs, cpu, affinity, spread, taints, host ports, priorities and budgets."""
    replay = Replay({node.name: node for node in (_node(random, k) for k in range(random.randint(3, 6)))})
    for number in range(random.randint(0, 2)):
        replay.budget(f"b{number}", random.choice(_APPS), random.randint(0, 1))
    return _waves(random, replay, _plain_pod)


def pods_with_units(random: Random) -> list[str]:
    """GPUs and FPGAs under the switches of the VFs."""
    replay = Replay({f"n{k}": _node_with_units(random, f"n{k}") for k in range(random.randint(2, 3))}, kinds())
    return _waves(random, replay, _pod_with_units)


def changed_rates(random: Random) -> list[str]:
    """Rates of running pods that are raised and lowered, beside pods that come and go."""
    nodes = [Node(f"n{k}", [pf(i, 6, network="rail0") for i in range(random.randint(1, 2))]) for k in range(2)]
    replay = Replay({node.name: node for node in nodes})
    counts = {f"p{number}": random.randint(1, 3) for number in range(5)}
    for number, (name, count) in enumerate(counts.items()):
        replay.create(pod(name, number, [_rate(random) for _ in range(count)]))
    replay.settle()
    for wave in range(3):
        for name in random.sample(sorted(counts), 3):
            replay.edit(name, [_rate(random) for _ in range(counts[name])])
        if random.random() < 0.5:
            replay.delete(random.choice(sorted(counts)))
        replay.create(pod(f"q{wave}", 10 + wave, [_rate(random)], priority=random.choice(_PRIORITIES)))
        replay.settle()
        for name in sorted(counts):
            if random.random() < 0.6:
                replay.put_in_force(name)
        replay.settle()
    return replay.lines


def _waves(random: Random, replay: Replay, make: Callable[[Random, int], Json]) -> list[str]:
    """Let pods come in three waves, of which the later ones are more urgent, and some go between."""
    number = 0
    for wave in range(3):
        for _ in range(random.randint(3, 5)):
            document = make(random, number)
            document["spec"]["priority"] = document["spec"]["priority"] + 5 * wave
            replay.create(document)
            number += 1
        replay.settle()
        if replay.bound and random.random() < 0.7:
            replay.delete(random.choice(sorted(replay.bound)))
    replay.settle()
    return replay.lines


def _node(random: Random, number: int) -> Node:
    labels = {ZONE: random.choice(_ZONES)} | ({"disk": random.choice(_DISKS)} if random.random() < 0.7 else {})
    effects = ("NoSchedule", "PreferNoSchedule")
    taints = [{"key": "team", "value": "1", "effect": random.choice(effects)}] if random.random() < 0.2 else []
    pfs = [_pf(random, index) for index in range(random.choice((0, 1, 2, 2, 3)))]
    return Node(
        f"n{number}",
        pfs,
        cpu=random.choice((2, 4, 8)),
        memory=random.choice(("4Gi", "16Gi")),
        pods=random.choice((3, 110, 110)),
        labels=labels,
        spec={"taints": taints, "unschedulable": random.random() < 0.07},
    )


def _pf(random: Random, index: int) -> Pf:
    fields: dict[str, Any] = {"network": random.choice(("rail0", "rail0", "rail1"))}
    if random.random() < 0.2:
        fields["port"] = "cable"
    if random.random() < 0.1:
        fields["up"] = False
    if random.random() < 0.2:
        fields["can"] = frozenset({"max_tx_rate"})
    return pf(index, random.randint(1, 5), offer_mbps=random.choice((50_000, 90_000)), **fields)


def _rate(random: Random) -> Json:
    rate = random.choice(_RATES)
    found: Json = {"min_tx_rate": rate} if rate else {}
    return found | ({"max_tx_rate": rate + 10_000} if random.random() < 0.3 else {})


def _interface(random: Random) -> Json:
    selectors: tuple[Json, ...] = ({"network": "rail0"}, {"network": "rail1"}, {"pf": "pf[01]"}, {"link": "ethernet"})
    return _rate(random) | (random.choice(selectors) if random.random() < 0.3 else {})


def _plain_pod(random: Random, number: int) -> Json:
    request = [_interface(random) for _ in range(random.choice((0, 1, 1, 2, 2, 3)))] or None
    fields = _rules(random)
    if request and random.random() < 0.4:
        fields["annotations"] = {"mooring.dev/placement": dump({"pfs": random.choice(("pack", "spread", "distinct"))})}
    if random.random() < 0.1:
        fields["preemptionPolicy"] = "Never"
    if random.random() < 0.15:
        fields["ports"] = [{"containerPort": 80, "hostPort": random.choice((8080, 8081)), "protocol": "TCP"}]
    cpu = random.choice((100, 500, 1000, 1500, 3000))
    return pod(f"p{number}", number, request, cpu, priority=random.choice(_PRIORITIES), **fields)


def _rules(random: Random) -> Json:
    """Return a pod's labels, and the rules of its spec about nodes and other pods."""
    labels, affinity = {"app": random.choice(_APPS)}, {}
    fields: Json = {"labels": labels}
    if random.random() < 0.15:
        fields["nodeSelector"] = {"disk": random.choice(_DISKS)}
    if random.random() < 0.3:
        fields["tolerations"] = [{"key": "team", "operator": "Exists"}]
    if random.random() < 0.2:
        term = {"key": "disk", "operator": random.choice(("Exists", "DoesNotExist"))}
        affinity["nodeAffinity"] = {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 20, "preference": {"matchExpressions": [term]}}
            ]
        }
    if random.random() < 0.25:
        affinity[random.choice(("podAffinity", "podAntiAffinity"))] = _pod_terms(random)
    if affinity:
        fields["affinity"] = affinity
    if random.random() < 0.2:
        fields["topologySpreadConstraints"] = [
            {
                "maxSkew": random.choice((1, 2)),
                "topologyKey": random.choice((ZONE, HOST)),
                "whenUnsatisfiable": random.choice(("DoNotSchedule", "ScheduleAnyway")),
                "labelSelector": {"matchLabels": {"app": random.choice(_APPS)}},
            }
        ]
    return fields


def _pod_terms(random: Random) -> Json:
    selector = {"matchLabels": {"app": random.choice(_APPS)}}
    term = {"topologyKey": random.choice((ZONE, HOST)), "labelSelector": selector}
    if random.random() < 0.6:
        return {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    return {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 50, "podAffinityTerm": term}]}


def _node_with_units(random: Random, name: str) -> Node:
    pfs = [pf(index, random.randint(1, 4), network="rail0") for index in range(random.randint(1, 3))]
    counts = [[random.randint(0, 3) for _ in range(3)] for _ in range(2)]
    return Node(name, pfs, gpus=counts[0], fpgas=counts[1])


def _pod_with_units(random: Random, number: int) -> Json:
    request = [_rate(random) for _ in range(random.choice((0, 1, 2, 3)))]
    fields: Json = {"annotations": {}}
    if random.random() < 0.7:
        fields["gpus"] = random.randint(1, 3)
        asked: Json = {}
        if random.random() < 0.4:
            asked["together"] = random.choice(("link", "switch", "numa"))
        if request and random.random() < 0.5:
            asked["vfs"] = "switch"
        if random.random() < 0.2:
            asked["model"] = "*100"
        fields["annotations"][ASKED_GPUS] = dump(asked)
    if random.random() < 0.5:
        beside = [random.randrange(len(request)) for _ in range(random.randint(1, 2))] if request else []
        fields["annotations"][ASKED_FPGAS] = dump([{"beside": one} for one in beside] or [{}])
    return pod(f"p{number}", number, request or None, priority=random.choice(_PRIORITIES), **fields)
