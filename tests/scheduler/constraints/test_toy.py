"""The toy constraint of docs/constraints.md, run from the page: its whole life cycle."""

from pathlib import Path
from typing import Any

import pytest

from mooring.parsing import dump
from scheduler.constraints.kinds import Kinds
from scheduler.cycle.decisions import Bind
from scheduler.cycle.instructions import Notice
from tests.scheduler.constraints.conftest import REPO, StartLife
from tests.scheduler.constraints.life import KindStory, assignment_of, units_of
from tests.scheduler.group_life import annotated, changed, victims
from tests.scheduler.story import play, stories

FULL = "not enough free cad licences."


class Seller(KindStory):
    """The verbs of the stories: nodes with licences, and pods that want some."""

    def node(self, name: str, cad: str, sim: str = "0", *flags: str) -> None:
        """Show a node with so many licences; with the flag ``pf`` it has VFs, with ``unready`` it is not Ready."""
        pfs = (self.life.make_pf(),) if "pf" in flags else ()
        text = dump({"v": 1, "cad": int(cad), "sim": int(sim)})
        self.life.show_node(name, *pfs, licence=text, ready="unready" not in flags)

    def later(self, seconds: str) -> None:
        self.life.now += float(seconds)

    def pod(self, name: str, count: str, licence: str = "cad", priority: str = "0", interfaces: str = "0") -> None:
        """Let a pod come, or show it with another request."""
        fields: dict[str, Any] = {"spec": {"priority": int(priority)}, "request": [{}] * int(interfaces) or None}
        if name in self.pods:
            fields["metadata"] = {"uid": self.pods[name].metadata.uid}
        self.come(name, licence=dump({"name": licence, "count": int(count)}), **fields)

    def given(self, bind: Bind) -> str:
        return " ".join([*units_of(bind, "licence"), *(vf.pf for vf in assignment_of(bind).vfs)])

    def preempt(self) -> str:
        """Decide; return the victims."""
        found = self.life.machine.step(self.life.now)
        self.life.machine.check()
        return " ".join(victims(found or ()))


@pytest.fixture
def seller(licences: Kinds, start_life: StartLife) -> Seller:
    return Seller(start_life(licences))


def test_the_toy_is_as_short_as_its_page_says(toy: Path) -> None:
    """Sixty lines, entry point included, by which it is found as `pip install` would make it."""
    page = (REPO / "docs/constraints.md").read_text()
    blocks = [page.split(f"```{language}\n")[1].split("```")[0] for language in ("python", "toml")]
    assert sum(len(block.splitlines()) for block in blocks) <= 60
    assert (toy / "mooring_licences.py").read_text() in page


STORIES = {
    "what is left goes to the next pod, and then no pod gets any": f"""
        node n1 2 | pod a 1 | decide > cad/0 | pod b 1 | decide > cad/1 | pod c 1 | decide > {FULL}""",
    # A deleted pod frees its units, a node whose inventory grows has more: both help at once.
    "an unschedulable pod is requeued when units are free": f"""
        node n1 2 | pod a 2 | decide > cad/0 cad/1 | pod b 1 | decide > {FULL} | decide | delete a | decide > cad/0
        | pod c 2 | decide > {FULL} | node n1 3 | decide > cad/1 cad/2""",
    # No other pod, and it gets them when that pod is gone.
    "a pod that holds the units is preempted for them": f"""
        node n1 3 1 | pod other 1 | decide > cad/0 | pod holder 2 | decide > cad/1 cad/2 | pod high 2 cad 1
        | preempt > holder | delete holder | decide > cad/1 cad/2 | pod last 1 | decide > {FULL}""",
    "a pod that holds other units is not preempted": """
        node n1 3 1 | pod other 1 sim | decide > sim/0 | pod holder 2 | decide > cad/0 cad/1 | pod high 3 cad 1
        | preempt > holder | delete holder | decide > cad/0 cad/1 cad/2""",
    "no pod is preempted for more units than the node has": """
        node n1 2 | pod holder 2 | decide > cad/0 cad/1 | pod high 3 cad 1 | preempt""",
    # A node with only one of them does not fit, and each node's reason is what it lacks.
    "VFs and units come together": """
        node units 1 | node vfs 0 0 pf | pod a 1 cad 0 1
        | decide > 0/2 nodes are available: 1 node(s) had no RDMA inventory, 1 not enough free cad licences.
        | node vfs 1 0 pf | decide > cad/0 pf0""",
    # After 60 s, as with VFs, and again when it is Ready; also if a pod leaves meanwhile.
    "a node that is not Ready gives nothing new": """
        node n1 2 | pod a 1 | decide > cad/0 | node n1 2 0 unready | later 100 | pod b 1
        | decide > node(s) were not Ready for over 60 s. | delete a | decide | node n1 2
        | decide > cad/0""",
    # The constraint's own words name the annotation, the field and the rule; fixing the annotation helps at once.
    "a request that cannot be read is refused in words": """
        node n1 2 | pod a 0 | decide > annotation 'mooring.dev/request.licence'.count: 0 is not an integer from 1 to 100
        | pod a 1 | decide > cad/0""",
}


@stories(STORIES)
def test_licences(story: str, seller: Seller) -> None:
    play(seller, story)


@pytest.mark.parametrize(
    ("order", "owner", "unit"),
    [("node pod", "a", "cad/1"), ("pod node", "a", "cad/1"), ("node pod", "other", "cad/0")],
)
def test_use_is_read_from_the_assignments_of_bound_pods(
    order: str, owner: str, unit: str, seller: Seller, licences: Kinds, start_life: StartLife
) -> None:
    """A restarted scheduler gives nothing twice, in whatever order nodes and pods come.

    As with VFs, a claim counts only for the pod that it names.
    """
    play(seller, "node n1 2 | pod a 1 | pod other 1")
    bind = seller.life.decide()
    assert isinstance(bind, Bind)
    after = Seller(start_life(licences))
    for kind in order.split():
        if kind == "node":
            after.node("n1", "2")
        else:
            claim = annotated(seller.pods[owner], dict(bind.annotations))
            after.life.see(changed(claim, spec={"nodeName": "n1"}))
    play(after, f"pod b 1 | decide > {unit}")


def test_an_inventory_that_cannot_be_read_leaves_the_node_out_for_this_kind(seller: Seller) -> None:
    """The log names node, kind and rule; other pods go there."""
    (notice,) = seller.life.show_node(licence='{"v":2}')
    assert isinstance(notice, Notice)
    assert notice.fields == {
        "node": "n1",
        "constraint": "licence",
        "reason": "annotation 'mooring.dev/inventory.licence'.v: 2 is not an integer from 1 to 1",
    }
    play(seller, "pod a 1 | decide > node(s) had an unreadable licence inventory.")
    assert isinstance(seller.life.outcome(seller.life.make_pod()), Bind)
