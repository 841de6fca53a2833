"""The reference for the scheduler's decisions: every node is judged for every pod, nothing is kept.

It follows the same rules for what the benchmark's pods use (taints, node affinity, cpu, memory, VFs) by plain loops.
"""

from dataclasses import dataclass, field
from typing import Any

from mooring import names
from mooring.annotations.request import PodRequest, read_request
from scheduler.kube.resources import parse_resources
from scheduler.placement.place import Fit, PfCapacity, VfDemand, place
from scheduler.placement.steps import Steps

Json = dict[str, Any]


@dataclass(slots=True)
class _Node:
    labels: dict[str, str]
    tainted: bool
    total: dict[str, int]
    left: dict[str, int]
    pfs: list[PfCapacity] = field(default_factory=lambda: [PfCapacity(32, 90_000) for _ in range(4)])


class FullScan:
    """A scheduler of the benchmark's documents."""

    def __init__(self, nodes: list[Json]) -> None:
        self._nodes = [_read(node) for node in nodes]

    def decide(self, pod: Json) -> int:
        """Put a pod on the best of all nodes and return its number; raise ValueError if none fits."""
        needs = parse_resources(pod["spec"]["containers"][0]["resources"]["requests"])
        request = read_request(pod["metadata"]["annotations"])
        assert request is not None, f"every pod of {names.SCHEDULER_NAME} asks for VFs here"
        found = [(_score(node, needs), index) for index, node in enumerate(self._nodes) if _fits(node, pod, needs)]
        placed = [(score, index) for score, index in found if isinstance(_place(self._nodes[index], request), Fit)]
        chosen = self._nodes[max(placed)[1]]
        _take(chosen, needs, request)
        return max(placed)[1]


def _read(node: Json) -> _Node:
    total = parse_resources(node["status"]["allocatable"])
    return _Node(node["metadata"]["labels"], bool(node["spec"].get("taints")), total, dict(total))


def _fits(node: _Node, pod: Json, needs: dict[str, int]) -> bool:
    if node.tainted and not pod["spec"].get("tolerations"):
        return False
    if pod["spec"].get("affinity") and node.labels.get("disk") != "nvme":
        return False
    return node.left["pods"] >= 1 and all(node.left[name] >= amount for name, amount in needs.items())


def _score(node: _Node, needs: dict[str, int]) -> float:
    return sum((node.left[name] - amount) / node.total[name] for name, amount in needs.items())


def _place(node: _Node, request: PodRequest) -> object:
    demands = [VfDemand(one.min_tx_rate, (1 << len(node.pfs)) - 1) for one in request.interfaces]
    return place(demands, node.pfs, request.pfs, steps=Steps())


def _take(node: _Node, needs: dict[str, int], request: PodRequest) -> None:
    placed = _place(node, request)
    assert isinstance(placed, Fit), "the node was chosen because it has room"
    node.left["pods"] -= 1
    for name, amount in needs.items():
        node.left[name] -= amount
    for interface, pf in zip(request.interfaces, placed.pfs, strict=True):
        capacity = node.pfs[pf]
        node.pfs[pf] = PfCapacity(capacity.vfs - 1, capacity.mbps - interface.min_tx_rate)
