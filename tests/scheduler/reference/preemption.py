"""Preemption in the plainest way: pods removed and put back, every rule checked on every node each time.

Written from Kubernetes' documentation and kube-scheduler's behaviour of DefaultPreemption, sharing nothing with the
scheduler. Beside the rules about other pods: cpu, the number of pods, host ports, and VFs with their rates.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random

from tests.scheduler.reference import plugins as rules
from tests.scheduler.reference.world import Json, World, random_node, random_pod, random_world

MBPS = 100
# What a pod of the same world needs: cpus, host port, and the min rate of each of its VFs.
PORTS = (0, 0, 0, 80, 81)


@dataclass(slots=True)
class Strife:
    """A world in which pods have priorities; ``nominated`` ones are not assigned: their nodeName is where they wait."""

    world: World
    budgets: list[Json] = field(default_factory=list)
    nominated: list[Json] = field(default_factory=list)


def random_strife(random: Random) -> Strife:
    """Draw a small cluster that is nearly full."""
    strife = Strife(random_world(random))
    world, strife.world.pods = strife.world, []
    world.nodes = [_node(random, number) for number in range(random.randint(1, 5))]
    for number in range(random.randint(2, 24)):
        pod = random_fighter(random, f"p{number}")
        _place(random, world, pod)
        if random.random() < 0.1:
            pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    for number in range(random.choice((0, 0, 1, 2))):
        # Without VFs: only the scheduler can say which ones a nominated pod would get.
        pod = random_fighter(random, f"n{number}") | {"rates": []}
        pod["spec"]["nodeName"] = random.choice(world.nodes)["metadata"]["name"]
        strife.nominated.append(pod)
    strife.budgets = [_budget(random, number, world.pods) for number in range(random.choice((0, 1, 3)))]
    return strife


def random_fighter(random: Random, name: str) -> Json:
    """Draw a pod with a priority, one in three with rules about other pods."""
    pod = random_pod(random)
    if random.random() < 0.67:
        pod["spec"].pop("affinity", None)
        pod["spec"].pop("topologySpreadConstraints", None)
    container: Json = {"name": "c", "resources": {"requests": {"cpu": str(random.choice((0, 1, 1, 2)))}}}
    if port := random.choice(PORTS):
        container["ports"] = [{"hostPort": port}]
    pod["spec"] |= {"containers": [container], "volumes": [], "priority": random.choice((-5, 0, 0, 1, 2))}
    pod["metadata"] |= {"name": name, "uid": name, "annotations": {}}
    pod["rates"] = random.choices((0, 30, 50), k=random.choice((0, 0, 1, 1, 2)))
    if random.random() < 0.8:
        pod["status"] = {"startTime": f"2026-01-01T00:00:{random.randint(0, 3):02}Z"}
    return pod


def _node(random: Random, number: int) -> Json:
    node = random_node(random, number)
    allocatable = {"cpu": str(random.randint(1, 6)), "pods": str(random.randint(1, 7)), "memory": "1Gi"}
    node["status"]["allocatable"] = allocatable
    node["pfs"] = random.choice(([2], [1, 2], [2, 2], []))
    return node


def _budget(random: Random, number: int, pods: Sequence[Json]) -> Json:
    disrupted = random.choice(([], [], [one["metadata"]["name"] for one in pods[:2]]))
    keys = random.choice((["app"], ["tier"], []))
    return {
        "metadata": {"name": f"b{number}", "namespace": random.choice("abc")},
        "spec": {"selector": {"matchLabels": {key: random.choice("xy") for key in keys}}},
        "status": {"disruptionsAllowed": random.randint(0, 2), "disruptedPods": dict.fromkeys(disrupted, "now")},
    }


def _place(random: Random, world: World, pod: Json) -> None:
    """Add an assigned pod where it fits, whatever rules about other pods say; leave it out if it fits nowhere."""
    for node in random.sample(world.nodes, len(world.nodes)):
        here = pods_on(world, node)
        found = _vfs_for(pod, node, here)
        if found is not None and not _lacks(pod, node, here):
            pod["spec"]["nodeName"] = node["metadata"]["name"]
            pod["vfs"] = found
            world.pods.append(pod)
            return


def pods_on(world: World, node: Json) -> list[Json]:
    return [one for one in world.pods if one["spec"]["nodeName"] == node["metadata"]["name"]]


def _vfs_for(pod: Json, node: Json, here: Sequence[Json]) -> list[tuple[int, int]] | None:
    """Return a PF and a VF for each interface, by trying all ways; None if there is no way."""
    taken = {vf for one in here for vf in one.get("vfs", ())}
    rates = dict.fromkeys(range(len(node["pfs"])), 0)
    for one in here:
        for (pf, _), rate in zip(one.get("vfs", ()), one["rates"], strict=True):
            rates[pf] += rate
    for pfs in itertools.product(rates, repeat=len(pod["rates"])):
        free = {pf: [vf for vf in range(node["pfs"][pf]) if (pf, vf) not in taken] for pf in rates}
        asked = {pf: sum(rate for rate, to in zip(pod["rates"], pfs, strict=True) if to == pf) for pf in rates}
        if all(pfs.count(pf) <= len(free[pf]) and (not asked[pf] or rates[pf] + asked[pf] <= MBPS) for pf in rates):
            return [(pf, free[pf].pop(0)) for pf in pfs]
    return None


def _lacks(pod: Json, node: Json, here: Sequence[Json]) -> bool:
    """Return whether cpu, pods or ports are insufficient."""
    allocatable = node["status"]["allocatable"]
    if len(here) + 1 > int(allocatable["pods"]):
        return True
    if cpu(pod) and sum(map(cpu, here)) + cpu(pod) > int(allocatable["cpu"]):
        return True
    return bool(ports(pod) & {port for one in here for port in ports(one)})


def cpu(pod: Json) -> int:
    return int(pod["spec"]["containers"][0]["resources"]["requests"]["cpu"])


def ports(pod: Json) -> set[int]:
    return {one["hostPort"] for one in pod["spec"]["containers"][0].get("ports", ())}


def priority(pod: Json) -> int:
    return int(pod["spec"]["priority"])


def refusal(strife: Strife, pod: Json, node: Json) -> str:
    """Return why a node is refused: "lasting" if no eviction could help, "now" if one might; empty if it fits.

    Nominated pods of the same or a higher priority count as assigned; so does their absence.
    """
    name = node["metadata"]["name"]
    rivals = [one for one in strife.nominated if one["spec"]["nodeName"] == name and priority(one) >= priority(pod)]
    found = _refusal(strife.world, pod, node)
    if found or not rivals:
        return found
    crowded = replace(strife.world, pods=[*strife.world.pods, *rivals])
    return "now" if _refusal(crowded, pod, node) else ""


def _refusal(world: World, pod: Json, node: Json) -> str:
    if not rules.admits(pod, node) or not rules.tolerates(pod, node) or (pod["rates"] and not node["pfs"]):
        return "lasting"
    here = pods_on(world, node)
    if _lacks(pod, node, here) or _vfs_for(pod, node, here) is None:
        return "now"
    if spread := rules.spread_refusal(world, pod, node):
        return "lasting" if "missing" in spread else "now"
    if affinity := rules.affinity_refusal(world, pod, node):
        return "lasting" if "didn't match pod affinity rules" in affinity else "now"
    return ""


def victims(strife: Strife, pod: Json, node: Json) -> tuple[list[Json], int] | None:
    """Return the victims on a node, the most important first, and how many of them violate a budget."""
    lower = [one for one in pods_on(strife.world, node) if priority(one) < priority(pod)]
    stay = [one for one in strife.world.pods if one not in lower]

    def is_refused(pods: list[Json]) -> bool:
        return bool(refusal(replace(strife, world=replace(strife.world, pods=pods)), pod, node))

    if not lower or is_refused(stay):
        return None
    lower.sort(key=importance)
    breaking, doomed = _breaking(strife, lower), list[Json]()
    for one in [*breaking, *(one for one in lower if one not in breaking)]:
        if is_refused([*stay, one]):
            doomed.append(one)
        else:
            stay.append(one)
    return (sorted(doomed, key=importance), sum(one in breaking for one in doomed)) if doomed else None


def _breaking(strife: Strife, pods: Sequence[Json]) -> list[Json]:
    """Return the pods that a budget does not allow to go, if those before them go too."""
    left = [budget["status"]["disruptionsAllowed"] for budget in strife.budgets]
    found = []
    for pod in pods:
        concerned = [index for index, budget in enumerate(strife.budgets) if _concerns(budget, pod)]
        for index in concerned:
            left[index] -= 1
        if any(left[index] < 0 for index in concerned):
            found.append(pod)
    return found


def _concerns(budget: Json, pod: Json) -> bool:
    selector, name = budget["spec"]["selector"], pod["metadata"]["name"]
    is_here = budget["metadata"]["namespace"] == pod["metadata"]["namespace"]
    counts = name not in budget["status"]["disruptedPods"] and rules.selects(selector, rules.labels_of(pod))
    return bool(is_here and selector["matchLabels"] and counts)


def started(pod: Json) -> str:
    return str(pod.get("status", {}).get("startTime", "later"))


def importance(pod: Json) -> tuple[int, str]:
    return -priority(pod), started(pod)


def loss(found: tuple[list[Json], int]) -> tuple[int, int, int, int]:
    """Return the cost of these victims: the smaller, the better."""
    doomed, broken = found
    priorities = [priority(one) for one in doomed]
    return broken, max(priorities), sum(one + 2**31 for one in priorities), len(priorities)


def since(found: tuple[list[Json], int]) -> str:
    """Return when the first of the most important victims started: the later, the better."""
    doomed, _ = found
    return min(started(one) for one in doomed if priority(one) == priority(doomed[0]))
