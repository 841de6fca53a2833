"""The plugins about other pods and image locality in the plainest way: each node against each pod.

Slow and obvious on purpose. Written from the Kubernetes documentation and kube-scheduler's behaviour, sharing nothing
with the scheduler; rounding is as there.
"""

import itertools
import math
from collections.abc import Iterable, Sequence

from tests.scheduler.reference.world import PREFERRED, REQUIRED, ZONE, Json, World

HOSTNAME = "kubernetes.io/hostname"


def labels_of(thing: Json) -> dict[str, str]:
    return thing["metadata"].get("labels") or {}


def selects(selector: Json | None, labels: dict[str, str]) -> bool:
    """Return whether a label selector selects these labels."""
    if selector is None:
        return False
    expressions, wanted = selector.get("matchExpressions") or [], selector.get("matchLabels") or {}
    return wanted.items() <= labels.items() and all(_holds(one, labels) for one in expressions)


def _holds(expression: Json, labels: dict[str, str]) -> bool:
    value, values = labels.get(expression["key"]), expression.get("values") or []
    return {
        "In": value in values,
        "NotIn": value not in values,
        "Exists": value is not None,
        "DoesNotExist": value is None,
    }[expression["operator"]]


def term_means(world: World, term: Json, owner: Json, other: Json) -> bool:
    """Return whether the term of a pod selects another pod."""
    namespaces, within = term.get("namespaces") or [], term.get("namespaceSelector")
    if not namespaces and within is None:
        namespaces = [owner["metadata"]["namespace"]]
    there = other["metadata"]["namespace"]
    if there not in namespaces and not selects(within, world.namespaces.get(there, {})):
        return False
    mine, theirs = labels_of(owner), labels_of(other)
    for key in term.get("matchLabelKeys") or []:
        if key in mine and theirs.get(key) != mine[key]:
            return False
    for key in term.get("mismatchLabelKeys") or []:
        if key in mine and theirs.get(key) == mine[key]:
            return False
    return selects(term.get("labelSelector"), theirs)


def terms(pod: Json, kind: str, strength: str) -> list[Json]:
    return ((pod["spec"].get("affinity") or {}).get(kind) or {}).get(strength) or []


def together(world: World, key: str, node: Json, pod: Json) -> bool:
    """Return whether an assigned pod is in the same domain as a node."""
    value = labels_of(node).get(key)
    home = next(one for one in world.nodes if one["metadata"]["name"] == pod["spec"]["nodeName"])
    return value is not None and labels_of(home).get(key) == value


def affinity_refusal(world: World, pod: Json, node: Json) -> str:
    """Return why a node is refused for pod affinity or anti-affinity; empty if it is not."""
    wanted = terms(pod, "podAffinity", REQUIRED)
    keys = [term["topologyKey"] for term in wanted]
    matching = [other for other in world.pods if all(term_means(world, term, pod, other) for term in wanted)]
    near = all(any(together(world, key, node, other) for other in matching) for key in keys)
    anywhere = any(together(world, key, home, other) for home in world.nodes for other in matching for key in keys)
    first = not anywhere and all(term_means(world, term, pod, pod) for term in wanted)
    if not near and not (first and all(key in labels_of(node) for key in keys)):
        return "node(s) didn't match pod affinity rules"
    apart = ("podAntiAffinity", REQUIRED)
    if any(_meets(world, term, pod, other, other, node) for other in world.pods for term in terms(pod, *apart)):
        return "node(s) didn't match pod anti-affinity rules"
    if any(_meets(world, term, other, pod, other, node) for other in world.pods for term in terms(other, *apart)):
        return "node(s) didn't satisfy existing pods anti-affinity rules"
    return ""


def _meets(world: World, term: Json, owner: Json, other: Json, assigned: Json, node: Json) -> bool:
    """Return whether an owner's term selects the other pod, if that comes to this node beside the assigned one."""
    return term_means(world, term, owner, other) and together(world, term["topologyKey"], node, assigned)


def affinity_scores(world: World, pod: Json, nodes: Sequence[Json]) -> list[int]:
    raw = [_affinity_sum(world, pod, node) for node in nodes]
    least, most = min(raw), max(raw)
    return [int(100.0 * ((one - least) / (most - least))) if most > least else 0 for one in raw]


def _affinity_sum(world: World, pod: Json, node: Json) -> int:
    found = 0
    for other in world.pods:
        for owner, chosen in ((pod, other), (other, pod)):
            for kind, sign in (("podAffinity", 1), ("podAntiAffinity", -1)):
                for one in terms(owner, kind, PREFERRED):
                    found += sign * one["weight"] * _meets(world, one["podAffinityTerm"], owner, chosen, other, node)
        found += sum(_meets(world, term, other, pod, other, node) for term in terms(other, "podAffinity", REQUIRED))
    return found


def admits(pod: Json, node: Json) -> bool:
    """Return whether the pod's node selector admits a node."""
    return all(labels_of(node).get(key) == value for key, value in (pod["spec"].get("nodeSelector") or {}).items())


def tolerates(pod: Json, node: Json) -> bool:
    tolerated = [(one["key"], one["value"]) for one in pod["spec"].get("tolerations") or []]
    taints = node["spec"].get("taints") or []
    return all(one["effect"] == "PreferNoSchedule" or (one["key"], one["value"]) in tolerated for one in taints)


def lets_count(constraint: Json, pod: Json, node: Json) -> bool:
    if constraint.get("nodeAffinityPolicy", "Honor") == "Honor" and not admits(pod, node):
        return False
    return constraint.get("nodeTaintsPolicy", "Ignore") == "Ignore" or tolerates(pod, node)


def crowd(world: World, constraint: Json, pod: Json, node: Json) -> int:
    """Return how many pods on a node the constraint counts."""
    return sum(
        1
        for other in world.pods
        if other["spec"]["nodeName"] == node["metadata"]["name"]
        and "deletionTimestamp" not in other["metadata"]
        and other["metadata"]["namespace"] == pod["metadata"]["namespace"]
        and constraint_means(constraint, pod, other)
    )


def constraint_means(constraint: Json, pod: Json, other: Json) -> bool:
    mine, theirs = labels_of(pod), labels_of(other)
    if "selectors" in constraint:  # by default: the labels and selectors of all that selects the pod
        return all(selects(selector, theirs) for selector in constraint["selectors"])
    same = all(theirs.get(key) == mine[key] for key in constraint.get("matchLabelKeys") or [] if key in mine)
    return same and selects(constraint.get("labelSelector"), theirs)


def spread_refusal(world: World, pod: Json, node: Json) -> str:
    """Return why a node is refused for topology spread; empty if it is not."""
    every = pod["spec"].get("topologySpreadConstraints") or []
    hard = [one for one in every if one["whenUnsatisfiable"] == "DoNotSchedule"]
    for constraint in hard:
        key = constraint["topologyKey"]
        if key not in labels_of(node):
            return "node(s) didn't match pod topology spread constraints (missing required label)"
        crowds: dict[str, int] = {}
        for one in world.nodes:
            if _has_keys(one, hard) and lets_count(constraint, pod, one):
                domain = labels_of(one)[key]
                crowds[domain] = crowds.get(domain, 0) + crowd(world, constraint, pod, one)
        least = min(crowds.values(), default=0) if len(crowds) >= constraint.get("minDomains", 1) else 0
        here = crowds.get(labels_of(node)[key], 0) + constraint_means(constraint, pod, pod)
        if here - least > constraint["maxSkew"]:
            return "node(s) didn't match pod topology spread constraints"
    return ""


def spread_scores(world: World, pod: Json, nodes: Sequence[Json]) -> list[int]:
    every = pod["spec"].get("topologySpreadConstraints") or []
    soft = [one for one in every if one["whenUnsatisfiable"] == "ScheduleAnyway"]
    by_default = not every
    if by_default:
        soft = default_constraints(world, pod)
    if not soft:
        return [0] * len(nodes)
    scored = [one for one in nodes if by_default or _has_keys(one, soft)]
    raw = {one["metadata"]["name"]: _spread_sum(world, pod, soft, one, scored, by_default) for one in scored}
    least, most = min(raw.values(), default=0), max(raw.values(), default=0)
    scores = []
    for node in nodes:
        found = raw.get(node["metadata"]["name"])
        scores.append(0 if found is None else 100 if most == 0 else 100 * (most + least - found) // most)
    return scores


def _spread_sum(
    world: World, pod: Json, soft: Sequence[Json], node: Json, scored: Sequence[Json], by_default: bool
) -> int:
    total = 0.0
    for constraint in soft:
        key = constraint["topologyKey"]
        if key not in labels_of(node):
            continue
        if key == HOSTNAME:
            crowded, size = crowd(world, constraint, pod, node), len(scored)
        else:
            size = len({labels_of(one).get(key, "") for one in scored})
            crowded = sum(
                crowd(world, constraint, pod, one)
                for one in world.nodes
                if (by_default or _has_keys(one, soft))
                and lets_count(constraint, pod, one)
                and labels_of(one).get(key) == labels_of(node)[key]
            )
        total += crowded * math.log(size + 2) + (constraint["maxSkew"] - 1)
    return math.floor(total + 0.5)


def default_constraints(world: World, pod: Json) -> list[Json]:
    """Return the system's defaults, for a pod that a service or its controller selects."""
    selectors: list[Json] = []
    for service in world.services:
        wanted, there = service["spec"]["selector"], service["metadata"]["namespace"] == pod["metadata"]["namespace"]
        if there and wanted is not None and selects({"matchLabels": wanted}, labels_of(pod)):
            selectors.append({"matchLabels": wanted})
    owners = [one for one in pod["metadata"].get("ownerReferences") or [] if one["apiVersion"] != "x/v1"]
    for owner, one in itertools.product(owners, world.controllers):
        same = (one["kind"], one["metadata"]["namespace"]) == (owner["kind"], pod["metadata"]["namespace"])
        if same and (selector := one["spec"]["selector"]) is not None:
            selectors.append({"matchLabels": selector} if owner["apiVersion"] == "v1" else selector)
    if not any(selector.get("matchLabels") or selector.get("matchExpressions") for selector in selectors):
        return []
    return [{"topologyKey": key, "maxSkew": skew, "selectors": selectors} for key, skew in ((HOSTNAME, 3), (ZONE, 5))]


def image_scores(world: World, pod: Json, nodes: Sequence[Json]) -> list[int]:
    containers = [*(pod["spec"].get("initContainers") or []), *pod["spec"]["containers"]]
    wanted = [one["image"] for one in containers]
    wanted += [one["image"]["reference"] for one in pod["spec"].get("volumes") or []]
    return [_image_score(world, wanted, node) for node in nodes]


def _image_score(world: World, wanted: Sequence[str], node: Json) -> int:
    least, most = 23 * 1024 * 1024, 1000 * 1024 * 1024 * len(wanted)
    found = 0
    for image in wanted:
        name = image if ":" in image.rpartition("/")[2] else image + ":latest"
        having = [one for one in world.nodes if _size(name, one["status"]["images"])]
        found += int(_size(name, node["status"]["images"]) * (len(having) / len(world.nodes)))
    return 100 * (min(max(found, least), most) - least) // (most - least)


def _size(name: str, images: Iterable[Json]) -> int:
    return next((int(one["sizeBytes"]) for one in images if name in one["names"]), 0)


def _has_keys(node: Json, constraints: Iterable[Json]) -> bool:
    return all(one["topologyKey"] in labels_of(node) for one in constraints)
