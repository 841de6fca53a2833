"""Random sequences of preemptions on small clusters: no half of a group is left, and no full group leaves in vain."""

import itertools
import json
from collections import Counter
from collections.abc import Iterable
from random import Random

import pytest

from scheduler.cache.assigned_pod import AssignedPod
from scheduler.cycle.instructions import DeleteVictims, DeleteVictimsResult
from scheduler.state.machine import Machine
from tests.scheduler.group_life import Life, binds, orders


def _counts(pods: Iterable[AssignedPod]) -> Counter[str]:
    """Return the number of pods of each group."""
    return Counter(pod.pod.partition("/")[2].rpartition("-")[0] for pod in pods)


class _Cluster:
    """A small cluster of nodes with two VFs; ``min_of`` and ``disruption_of`` are by group."""

    def __init__(self, life: Life, random: Random) -> None:
        self.life, self.random = life, random
        self.min_of, self.disruption_of = dict[str, int](), dict[str, str]()
        self._fill()

    def _fill(self) -> None:
        self.life.nodes(*(f"n{number}" for number in range(self.random.randint(4, 8))))
        for _ in range(12):
            for order in self._come(self.random.choice((0, 0, 3)), self.random.choice((1, 1, 2, 3, 4))):
                self._carry_out(order)
        self.life.bound(*binds(self.life.work(15.0)))

    def _come(self, priority: int, count: int) -> list[DeleteVictims]:
        name, size = f"g{len(self.min_of)}", self.random.choice((1, 2, 2))
        self.min_of[name] = max(count - self.random.choice((0, 0, 1)), 1)
        self.disruption_of[name] = disruption = self.random.choice(("", "", "", "group", "pod"))
        document = {"name": name, "min": self.min_of[name]} | ({"disruption": disruption} if disruption else {})
        group, spec = "" if count == 1 else json.dumps(document), {"priority": priority}
        self.life.see(*(self.life.member(f"{name}-{k}", group, request=[{}] * size, spec=spec) for k in range(count)))
        instructions = self.life.work(15.0)
        self.life.bound(*binds(instructions))
        return orders(instructions)

    def preempt(self) -> Iterable[DeleteVictims]:
        """Let more important pods and groups come; some orders are carried out at once, some later."""
        open_orders = list[DeleteVictims]()
        for step in range(6):
            for order in self._come(10 + step, self.random.choice((1, 1, 2, 3))):
                yield order
                open_orders.append(order)
            if self.random.random() < 0.5:
                for order in open_orders:
                    self._carry_out(order)
                open_orders.clear()
                self.life.bound(*binds(self.life.work(15.0)))

    def _carry_out(self, order: DeleteVictims) -> None:
        self.life.machine.finished(order, DeleteVictimsResult(order.victims), self.life.now)
        for victim in order.victims:
            self.life.gone(self.life.make_pod(victim.pod.partition("/")[2], metadata={"uid": victim.uid}))

    def rest(self) -> Counter[str]:
        """Return the number of pods of each group that no order deletes."""
        removals = self.life.machine.state.removals
        return _counts(pod for pod in self.life.machine.cache.assigned_pods() if pod.uid not in removals)

    def broken(self, counts: Counter[str], names: Iterable[str]) -> list[str]:
        """Return the groups that have fewer pods than they need, unless their pods leave one by one."""
        groups = (name for name in names if self.min_of[name] > 1 and self.disruption_of[name] != "pod")
        return [name for name in groups if counts[name] < self.min_of[name]]


@pytest.fixture
def cluster(life: Life, seed: int) -> _Cluster:
    return _Cluster(life.successor(Machine("mooring", portion=1)), Random(seed))


@pytest.mark.parametrize("seed", range(40))
def test_no_sequence_of_preemptions_leaves_half_of_a_group(cluster: _Cluster) -> None:
    for order in cluster.preempt():
        rest = cluster.rest()
        assert not cluster.broken(rest, rest), [victim.pod for victim in order.victims]


@pytest.mark.parametrize("seed", range(56))
def test_no_full_group_leaves_while_pods_of_equal_priority_are_enough(cluster: _Cluster) -> None:
    """For a pod that needs a node to itself, all sets of pods that may leave one by one are tried, node by node."""
    life = cluster.life
    life.see(life.make_pod("urgent", [{}, {}], spec={"priority": 100}))
    victims = [victim for order in orders(life.work(15.0)) for victim in order.victims]
    rest, gone = cluster.rest(), _counts(victims)
    if not cluster.broken(rest, gone):
        return
    highest = max(victim.priority for victim in victims)
    for node in life.machine.cache.node_names():
        pods = life.machine.cache.assigned_pods_on(node)
        needed = {pod.uid for pod in pods if pod.assignment is not None and pod.assignment.vfs}
        lower = [pod for pod in pods if pod.priority <= highest]
        for count in range(1, len(lower) + 1):
            for chosen in itertools.combinations(lower, count):
                if needed <= {pod.uid for pod in chosen}:
                    leaving = _counts(chosen)
                    assert cluster.broken(rest + gone - leaving, leaving), node
