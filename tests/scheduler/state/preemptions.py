"""Stories of preemptions: pods by name that want a VF each, and what is decided about them.

Pods are ``pod NAME PRIORITY`` with, where they want something else than one VF, ``x2``, ``60G`` or ``none``, or with
``Never`` or ``nominated=NODE``. Decisions are ``-NAME`` for a victim, ``NAME@NODE`` for a bind, which is carried out,
and ``NAME:NODE`` for a nomination, with no node where it ends.
"""

from collections.abc import Iterable
from typing import Any

import pytest

from mooring import names
from scheduler.cycle.cycle import SchedulingCycle
from scheduler.cycle.instructions import DeleteVictims, DeleteVictimsResult, Instruction, Report
from scheduler.kube.objects import Pod
from tests.scheduler.group_life import orders
from tests.scheduler.state.life import Life, binds_of, nominated_in, victims_of

# A pod takes the only VF of a node from another.
PREEMPTED = "node n1 | pod low 0 | later > low@n1 | pod mid 1 | later > -low mid:n1"


class Preemptions:
    """The verbs of the stories; ``orders`` are the last orders to delete victims."""

    def __init__(self, life: Life) -> None:
        self.life, self.machine = life, life.machine
        self.pods: dict[str, Pod] = {}
        self.orders: list[DeleteVictims] = []

    def node(self, name: str, vfs: str = "1") -> None:
        self.life.node(name, int(vfs))

    def lose(self, node: str) -> None:
        self.life.remove_node(node)

    def pod(self, name: str, priority: str, *words: str) -> None:
        fields: dict[str, Any] = {"request": [{}]}
        for word in words:
            match word[-1], word:
                case "G", _:
                    fields["request"] = [{"min_tx_rate": int(word[:-1]) * 1000}]
                case _, "none":
                    fields["request"] = None
                case _, "Never":
                    fields["spec"] = {"preemptionPolicy": "Never"}
                case _ if word.startswith("x"):
                    fields["request"] = [{}] * int(word[1:])
                case _:
                    fields["status"] = {"nominatedNodeName": word.removeprefix("nominated=")}
        self.pods[name] = self.life.pod(int(priority), name=name, **fields)

    def ends(self, name: str) -> None:
        """Let the API server have accepted the deletion of a victim."""
        self.pods[name] = self.life.terminate(self.pods[name])

    def gone(self, name: str) -> None:
        self.life.gone(self.pods[name])

    def shrink(self, name: str) -> None:
        self.life.show(self.pods[name], metadata={"annotations": {}})

    def confuse(self, name: str) -> None:
        """Let a pod request what cannot be read."""
        self.life.show(self.pods[name], metadata={"annotations": {names.REQUEST: '[{"unknown":1}]'}})

    def reject(self, *reason: str) -> str:
        """Let the API server reject the last order; return what is told."""
        (order,) = self.orders
        found = self.machine.finished(order, DeleteVictimsResult((), " ".join(reason)), self.life.now)
        return " ".join([one.message for one in found if isinstance(one, Report)] + self._decisions(found))

    def later(self) -> str:
        """Let backoffs end, and decide about all that is ready."""
        return self._carry_out(self.life.decide())

    def now(self) -> str:
        return self._carry_out(self.life.decide(0.0))

    def fail(self) -> str:
        """Let the next decision fail by a bug; return what is decided then."""
        self.life.now += 15.0
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(SchedulingCycle, "proceed", lambda *_: 1 // 0)
            with pytest.raises(ZeroDivisionError):
                self.machine.step(self.life.now)
        return self._carry_out(self.machine.give_up(self.life.now))

    def begin(self) -> None:
        """Let backoffs end, and a search for victims begin."""
        self.life.now += 15.0
        assert self.machine.step(self.life.now) == []
        assert self.machine.is_trying
        assert self.machine.next_due() == 0.0

    def kept(self) -> str:
        """Return how many reservations there are."""
        return str(len(self.machine.reservations))

    def _carry_out(self, found: list[Instruction]) -> str:
        self.orders = orders(found)
        decisions = " ".join(self._decisions(found))
        for pod in self.life.bind(found):
            self.pods[pod.metadata.name] = pod
        return decisions

    def _decisions(self, found: Iterable[Instruction]) -> list[str]:
        name_of = {pod.metadata.uid: name for name, pod in self.pods.items()}
        nominated = [(uid, node) for uid, node in nominated_in(found) if node is not None]
        victims = [f"-{name_of[uid]}" for uid in victims_of(found)]
        decided = [f"{name_of[uid]}@{node}" for uid, node in binds_of(found)]
        return sorted(victims) + sorted(decided) + sorted(f"{name_of[uid]}:{node}" for uid, node in nominated)
