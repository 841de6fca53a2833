"""The toy constraint of docs/constraints.md, run from the page: its whole life cycle."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from scheduler.constraints.kinds import Kinds
from scheduler.cycle.decisions import Bind
from scheduler.cycle.instructions import DeleteVictims, Instruction, Notice
from scheduler.kube.objects import Node, Pod
from tests.scheduler.conftest import MakeNode, MakePf, MakePod
from tests.scheduler.constraints.conftest import REPO, StartLife
from tests.scheduler.constraints.life import Life, assignment_of, bound, units_of

SellerLife = Callable[[], Life]


def _asking(count: int = 1, name: str = "cad") -> dict[str, str]:
    return {"mooring.dev/request.licence": f'{{"name":"{name}","count":{count}}}'}


@pytest.fixture
def seller(make_node: MakeNode) -> MakeNode:
    """Make a node with licences."""

    def make(text: str = '{"v":1,"cad":2}', name: str = "n1", **fields: Any) -> Node:
        return make_node(name, annotations={"mooring.dev/inventory.licence": text}, **fields)

    return make


@pytest.fixture
def user(make_pod: MakePod) -> MakePod:
    """Make a pod that wants licences."""

    def make(count: int = 1, name: str = "cad", **fields: Any) -> Pod:
        return make_pod(annotations=_asking(count, name), **fields)

    return make


@pytest.fixture
def start(licences: Kinds, start_life: StartLife, seller: MakeNode) -> SellerLife:
    """Start a machine that sees a node with two licences."""

    def make() -> Life:
        life = start_life(licences)
        life.see(seller())
        return life

    return make


@pytest.fixture
def life(start: SellerLife) -> Life:
    return start()


def _run(life: Life, pod: Pod) -> Pod:
    """Place a pod, and let the machine see it bound."""
    shown = bound(pod, life.place(pod))
    life.see(shown)
    return shown


def _victims(instructions: list[Instruction] | None) -> list[str]:
    orders = [one for one in instructions or () if isinstance(one, DeleteVictims)]
    return [assigned.uid for order in orders for assigned in order.victims]


def test_the_toy_is_as_short_as_its_page_says(toy: Path) -> None:
    """Sixty lines, entry point included, by which it is found as `pip install` would make it."""
    page = (REPO / "docs/constraints.md").read_text()
    blocks = [page.split(f"```{language}\n")[1].split("```")[0] for language in ("python", "toml")]
    assert sum(len(block.splitlines()) for block in blocks) <= 60
    assert (toy / "mooring_licences.py").read_text() in page


def test_a_pod_gets_its_units_in_the_one_write(life: Life, user: MakePod) -> None:
    """The units are in the assignment, without VFs; what is left goes to the next pod, and then no pod gets any."""
    first = life.place(user())
    assert assignment_of(first).vfs == ()
    assert units_of(first, "licence") == ["cad/0"]
    assert isinstance(first, Bind)
    assert first.why["ext"] == {"licence": {"units": ["cad/0"]}}
    assert units_of(life.place(user()), "licence") == ["cad/1"]
    assert life.place(user()) == "0/1 nodes are available: 1 not enough free cad licences."


def test_an_unschedulable_pod_is_requeued_when_units_are_free(life: Life, seller: MakeNode, user: MakePod) -> None:
    """A deleted pod frees its units, a node whose inventory grows has more: both help at once."""
    holder = user(2)
    assert units_of(life.place(holder), "licence") == ["cad/0", "cad/1"]
    assert isinstance(life.place(user()), str)
    assert life.step() is None
    life.end(holder)
    assert units_of(life.step(), "licence") == ["cad/0"]
    assert isinstance(life.place(user(2)), str)
    life.see(seller('{"v":1,"cad":3}'))
    assert units_of(life.step(), "licence") == ["cad/1", "cad/2"]


def test_use_is_read_from_the_assignments_of_bound_pods(
    licences: Kinds, start_life: StartLife, start: SellerLife, seller: MakeNode, user: MakePod
) -> None:
    """A restarted scheduler gives nothing twice, in whatever order nodes and pods come.

    As with VFs, a claim counts only for the pod that it names.
    """
    pod = user()
    bind = start().place(pod)
    shown, forged = bound(pod, bind), bound(user(), bind)
    for things, unit in (((seller(), shown), "cad/1"), ((shown, seller()), "cad/1"), ((seller(), forged), "cad/0")):
        after = start_life(licences)
        after.see(*things)
        assert units_of(after.place(user()), "licence") == [unit]


@pytest.mark.parametrize(("name", "units"), [("cad", ["cad/1", "cad/2"]), ("sim", ["cad/0", "cad/1", "cad/2"])])
def test_a_pod_that_holds_the_units_is_preempted_for_them(
    life: Life, seller: MakeNode, user: MakePod, name: str, units: list[str]
) -> None:
    """A more important pod preempts the pod whose units it needs and no other, and gets them when that pod is gone."""
    life.see(seller('{"v":1,"cad":3,"sim":1}'))
    other, holder = _run(life, user(1, name)), _run(life, user(2))
    life.see(user(len(units), spec={"priority": 1}))
    assert _victims(life.machine.step(life.now)) == [holder.metadata.uid]
    life.machine.check()
    life.end(holder)
    assert units_of(life.step(), "licence") == units
    assert life.machine.cache.assigned(other.metadata.uid) is not None


def test_no_pod_is_preempted_for_more_units_than_the_node_has(life: Life, user: MakePod) -> None:
    holder = _run(life, user(2))
    life.see(user(3, spec={"priority": 1}))
    assert _victims(life.machine.step(life.now)) == []
    life.machine.check()
    assert life.machine.cache.assigned(holder.metadata.uid) is not None


def test_vfs_and_units_come_together(
    licences: Kinds, start_life: StartLife, seller: MakeNode, user: MakePod, make_pf: MakePf
) -> None:
    """A node with only one of them does not fit, and each node's reason is what it lacks."""
    life = start_life(licences)
    life.see(seller('{"v":1,"cad":1}', "units"), seller('{"v":1,"cad":0}', "vfs", pfs=(make_pf(),)))
    message = "0/2 nodes are available: 1 node(s) had no RDMA inventory, 1 not enough free cad licences."
    assert life.place(user(request=[{}])) == message
    life.see(seller('{"v":1,"cad":1}', "vfs", pfs=(make_pf(),)))
    bind = life.step()
    assert [vf.pf for vf in assignment_of(bind).vfs] == ["pf0"]
    assert units_of(bind, "licence") == ["cad/0"]


def test_a_node_that_is_not_ready_gives_nothing_new(life: Life, seller: MakeNode, user: MakePod) -> None:
    """After 60 s, as with VFs, and again when it is Ready; also if a pod leaves meanwhile."""
    holder = user()
    life.place(holder)
    life.see(seller(ready=False))
    life.now += 100.0
    assert "were not Ready for over 60 s" in str(life.place(user()))
    life.end(holder)
    assert life.step() is None
    life.see(seller())
    assert units_of(life.step(), "licence") == ["cad/0"]


def test_a_request_that_cannot_be_read_is_refused_in_words(life: Life, user: MakePod) -> None:
    """The constraint's own words name the annotation, the field and the rule; fixing the annotation helps at once."""
    pod = user(0)
    assert life.place(pod) == "annotation 'mooring.dev/request.licence'.count: 0 is not an integer from 1 to 100"
    mended = msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, annotations=_asking(1)))
    assert units_of(life.place(mended), "licence") == ["cad/0"]


def test_an_inventory_that_cannot_be_read_leaves_the_node_out_for_this_kind(
    life: Life, seller: MakeNode, user: MakePod, make_pod: MakePod
) -> None:
    """The log names node, kind and rule; other pods go there."""
    (notice,) = life.see(seller('{"v":2}'))
    assert isinstance(notice, Notice)
    assert notice.fields == {
        "node": "n1",
        "constraint": "licence",
        "reason": "annotation 'mooring.dev/inventory.licence'.v: 2 is not an integer from 1 to 1",
    }
    said = "0/1 nodes are available: 1 node(s) had an unreadable licence inventory."
    assert life.place(user()) == said
    assert isinstance(life.place(make_pod()), Bind)
