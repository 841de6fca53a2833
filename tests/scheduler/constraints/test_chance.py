"""Random runs with FPGAs: nothing is given twice, what is kept equals a new derivation, and no pod waits in vain."""

from random import Random

import pytest

from mooring.kube.events import Identity, Removed
from mooring.parsing import dump
from scheduler.constraints.kinds import Kinds
from scheduler.cycle.cycle import SchedulingCycle
from scheduler.cycle.decisions import Bind, Unschedulable
from scheduler.cycle.placement_budget import PlacementBudget
from scheduler.cycle.preemption.disruption_budgets import Budgets
from scheduler.cycle.preemption.preemption import Preemption
from scheduler.cycle.signature_scores import SignatureScores
from scheduler.kube.objects import Pod
from scheduler.pending.reservations import Reservations
from scheduler.placement.steps import Steps
from scheduler.queue.queue import Queue
from tests.scheduler.constraints.conftest import StartLife
from tests.scheduler.constraints.life import Life, units_of
from tests.scheduler.group_life import as_bound, pod_info_of

NODES, STEPS = 6, 120


class World:
    """A random cluster: its events go to the machine, and what the machine gave is recorded."""

    def __init__(self, seed: int, life: Life) -> None:
        self.random, self.life = Random(seed), life
        self.given: dict[str, tuple[Pod, set[tuple[str, str]]]] = {}
        self.waiting: dict[str, Pod] = {}

    def show_node(self) -> None:
        counts = [(switch, number) for switch in range(2) for number in range(self.random.randrange(4))]
        fpgas = [{"pci": f"0000:{switch + 1}{number}:00.0", "pcie": _path(switch)} for switch, number in counts]
        pfs = tuple(self.life.make_pf(index, self.random.randrange(1, 4), pcie=_path(index)) for index in range(2))
        text = dump({"v": 1, "fpgas": fpgas}) if self.random.random() < 0.7 else "{"
        self.life.show_node(f"n{self.random.randrange(NODES)}", *pfs, fpga=text)

    def pod(self) -> Pod:
        interfaces = self.random.randrange(3)
        beside = [self.random.choice([None, *range(interfaces)]) for _ in range(self.random.randrange(4))]
        asked = dump([{} if index is None else {"beside": index} for index in beside]) if beside else None
        return self.life.asking(request=[{}] * interfaces or None, fpga=asked)

    def act(self) -> None:
        chance = self.random.random()
        if chance < 0.25:
            self.show_node()
        elif chance < 0.3:
            self.life.machine.nodes(Removed(Identity(f"n{self.random.randrange(NODES)}")), self.life.now)
        elif chance < 0.75 or not self.given:
            pod = self.pod()
            self.waiting[pod.metadata.uid] = pod
            self.life.see(pod)
        else:
            self.life.gone(self.given.pop(self.random.choice(sorted(self.given)))[0])

    def decide(self) -> None:
        """Let the machine decide until no pod is ready; what it gives must belong to no other pod."""
        while (found := self.life.decide()) is not None:
            if isinstance(found, Bind):
                del self.waiting[found.pod_info.uid]
                units = units_of(found, "fpga") if found.pod_info.wishes else []
                given = {(found.assigned.node, unit) for unit in units}
                assert given.isdisjoint(unit for _, others in self.given.values() for unit in others)
                self.given[found.pod_info.uid] = as_bound(found), given


def _path(switch: int) -> tuple[str, ...]:
    return (f"0000:00:0{switch + 1}.0", f"0000:{switch + 1}f:00.0")


def _says(signature_scores: SignatureScores) -> object:
    for row in signature_scores.passing_rows():
        signature_scores.exact(int(row), PlacementBudget())
    refused = {(int(row), texts) for _, texts, rows in signature_scores.refusals() for row in rows}
    rows = signature_scores.passing_rows()
    return refused, rows.tolist(), signature_scores.scores(rows).tolist()


@pytest.mark.parametrize("seed", range(10))
def test_random_actions_keep_every_guarantee(seed: int, fpgas: Kinds, start_life: StartLife) -> None:
    """Nodes, inventories and pods come, change and go: after each step the state equals one derived from scratch."""
    life = start_life(fpgas)
    world, cache = World(seed, life), life.machine.cache
    shapes = [pod_info_of(world.pod(), fpgas) for _ in range(3)]
    kept = [SignatureScores(pod_info, cache.nodes, Steps()) for pod_info in shapes]
    for step in range(STEPS):
        world.act()
        world.decide()
        life.machine.check()
        kept[step % 3].refresh(Steps())
        assert _says(kept[step % 3]) == _says(SignatureScores(shapes[step % 3], cache.nodes, Steps())), f"step {step}"
        reservations = Reservations(Queue())
        fresh = SchedulingCycle(cache, reservations, Preemption(cache, reservations, Budgets()))
        for pod in world.waiting.values():
            assert isinstance(fresh.decide(pod_info_of(pod, fpgas), life.now), Unschedulable), f"step {step}"
