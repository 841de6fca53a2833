"""The toy constraint of docs/constraints.md, run from the page: its whole life cycle."""

from pathlib import Path

import msgspec
import pytest

from scheduler.constraints.kinds import Kinds
from scheduler.cycle.decisions import Bind
from scheduler.cycle.instructions import DeleteVictims, Notice
from scheduler.kube.objects import Node, Pod
from tests.scheduler.conftest import MakeNode, MakePf, MakePod
from tests.scheduler.constraints.conftest import REPO, StartLife
from tests.scheduler.constraints.life import assignment_of, bound, units_of

INVENTORY, REQUEST = "mooring.dev/inventory.licence", "mooring.dev/request.licence"


@pytest.fixture
def make_seller(make_node: MakeNode) -> MakeNode:
    """Make a node with licences."""

    def make(name: str = "n1", text: str = '{"v":1,"cad":2}', **fields: object) -> Node:
        return make_node(name, annotations={INVENTORY: text}, **fields)

    return make


def _asking(count: int = 1, name: str = "cad") -> dict[str, str]:
    return {REQUEST: f'{{"name":"{name}","count":{count}}}'}


def test_the_toy_is_as_short_as_its_page_says() -> None:
    """Sixty lines, entry point included."""
    page = (REPO / "docs/constraints.md").read_text()
    blocks = [page.split(f"```{language}\n")[1].split("```")[0] for language in ("python", "toml")]
    assert sum(len(block.splitlines()) for block in blocks) <= 60


def test_a_pod_gets_its_units_in_the_one_write(
    licences: Kinds, start_life: StartLife, make_seller: MakeNode, make_pod: MakePod
) -> None:
    """The units are in the assignment, without VFs; what is left goes to the next pod, and then no pod gets any."""
    life = start_life(licences)
    life.see(make_seller())
    first = life.place(make_pod(annotations=_asking()))
    assert assignment_of(first).vfs == ()
    assert units_of(first, "licence") == ["cad/0"]
    assert isinstance(first, Bind)
    assert first.why["ext"] == {"licence": {"units": ["cad/0"]}}
    assert units_of(life.place(make_pod(annotations=_asking())), "licence") == ["cad/1"]
    assert life.place(make_pod(annotations=_asking())) == "0/1 nodes are available: 1 not enough free cad licences."


def test_an_unschedulable_pod_is_requeued_when_units_are_free(
    licences: Kinds, start_life: StartLife, make_seller: MakeNode, make_pod: MakePod
) -> None:
    """A deleted pod frees its units, a node whose inventory grows has more: both help at once."""
    life = start_life(licences)
    life.see(make_seller())
    holder = make_pod(annotations=_asking(2))
    assert units_of(life.place(holder), "licence") == ["cad/0", "cad/1"]
    waiting = make_pod(annotations=_asking(1))
    assert isinstance(life.place(waiting), str)
    assert life.step() is None
    life.end(holder)
    freed = life.step()
    assert units_of(freed, "licence") == ["cad/0"]
    assert isinstance(life.place(make_pod(annotations=_asking(2))), str)
    life.see(make_seller(text='{"v":1,"cad":3}'))
    assert units_of(life.step(), "licence") == ["cad/1", "cad/2"]


def test_use_is_read_from_the_assignments_of_bound_pods(
    licences: Kinds, start_life: StartLife, make_seller: MakeNode, make_pod: MakePod
) -> None:
    """A restarted scheduler gives nothing twice, in whatever order nodes and pods come."""
    before = start_life(licences)
    before.see(make_seller())
    pod = make_pod(annotations=_asking())
    shown = bound(pod, before.place(pod))
    orders: list[list[Node | Pod]] = [[make_seller(), shown], [shown, make_seller()]]
    for things in orders:
        after = start_life(licences)
        after.see(*things)
        assert units_of(after.place(make_pod(annotations=_asking())), "licence") == ["cad/1"]


def test_a_unit_that_two_pods_claim_is_free_when_both_are_gone(
    licences: Kinds, start_life: StartLife, make_seller: MakeNode, make_pod: MakePod
) -> None:
    """One deletion is not enough: the other pod still has the unit."""
    life = start_life(licences)
    life.see(make_seller(text='{"v":1,"cad":1}'))
    twins = []
    for _ in range(2):
        elsewhere = start_life(licences)
        elsewhere.see(make_seller(text='{"v":1,"cad":1}'))
        pod = make_pod(annotations=_asking())
        twins.append(bound(pod, elsewhere.place(pod)))
    life.see(*twins)
    assert isinstance(life.place(make_pod(annotations=_asking())), str)
    life.end(twins[0])
    found = life.step()
    assert not isinstance(found, Bind)
    life.end(twins[1])
    assert units_of(life.step(), "licence") == ["cad/0"]


def test_units_of_victims_count_as_free(
    licences: Kinds, start_life: StartLife, make_seller: MakeNode, make_pod: MakePod
) -> None:
    """A more important pod preempts the pod whose units it needs, and gets them when that pod is gone."""
    life = start_life(licences)
    life.see(make_seller(text='{"v":1,"cad":1,"sim":1}'))
    holders = [make_pod(annotations=_asking(name=name)) for name in ("sim", "cad")]
    life.see(*[bound(pod, life.place(pod)) for pod in holders])
    life.see(make_pod(annotations=_asking(), spec={"priority": 10}))
    orders = [one for one in life.machine.step(life.now) or () if isinstance(one, DeleteVictims)]
    assert [assigned.uid for order in orders for assigned in order.victims] == [holders[1].metadata.uid]
    life.end(holders[1])
    assert units_of(life.step(), "licence") == ["cad/0"]


def test_an_assignment_of_another_pod_claims_nothing(
    licences: Kinds, start_life: StartLife, make_seller: MakeNode, make_pod: MakePod
) -> None:
    """As with VFs: a claim counts only for the pod and the node that it names."""
    life = start_life(licences)
    life.see(make_seller())
    pod = make_pod(annotations=_asking())
    forged = bound(make_pod(), life.place(pod))
    fresh = start_life(licences)
    fresh.see(make_seller(), forged)
    assert units_of(fresh.place(make_pod(annotations=_asking())), "licence") == ["cad/0"]


def test_vfs_and_units_come_together(
    licences: Kinds, start_life: StartLife, make_seller: MakeNode, make_pod: MakePod, make_pf: MakePf
) -> None:
    """A node with only one of them does not fit, and each node's reason is what it lacks."""
    life = start_life(licences)
    life.see(make_seller("units", text='{"v":1,"cad":1}'))
    pf_only = make_seller("vfs", pfs=(make_pf(),), text='{"v":1,"cad":0}')
    life.see(pf_only)
    pod = make_pod(request=[{}], annotations=_asking())
    message = "0/2 nodes are available: 1 node(s) had no RDMA inventory, 1 not enough free cad licences."
    assert life.place(pod) == message
    life.see(make_seller("vfs", pfs=(make_pf(),), text='{"v":1,"cad":1}'))
    bind = life.step()
    assert [vf.pf for vf in assignment_of(bind).vfs] == ["pf0"]
    assert units_of(bind, "licence") == ["cad/0"]


def test_a_node_that_is_not_ready_gives_nothing_new(
    licences: Kinds, start_life: StartLife, make_seller: MakeNode, make_pod: MakePod
) -> None:
    """After 60 s, as with VFs, and again when it is Ready; also if a pod leaves meanwhile."""
    life = start_life(licences)
    life.see(make_seller())
    holder = make_pod(annotations=_asking())
    life.place(holder)
    life.see(make_seller(ready=False))
    life.now += 100.0
    assert "were not Ready for over 60 s" in str(life.place(make_pod(annotations=_asking())))
    life.end(holder)
    assert life.step() is None
    life.see(make_seller())
    assert units_of(life.step(), "licence") == ["cad/0"]


def test_a_request_that_cannot_be_read_is_refused_in_words(
    licences: Kinds, start_life: StartLife, make_seller: MakeNode, make_pod: MakePod
) -> None:
    """The constraint's own words name the annotation, the field and the rule; fixing the annotation helps at once."""
    life = start_life(licences)
    life.see(make_seller())
    pod = make_pod(annotations=_asking(0))
    assert life.place(pod) == "annotation 'mooring.dev/request.licence'.count: 0 is not an integer from 1 to 100"
    mended = msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, annotations=_asking(1)))
    assert units_of(life.place(mended), "licence") == ["cad/0"]


def test_an_inventory_that_cannot_be_read_leaves_the_node_out_for_this_kind(
    licences: Kinds, start_life: StartLife, make_seller: MakeNode, make_pod: MakePod
) -> None:
    """The log names node, kind and rule; other pods go there."""
    life = start_life(licences)
    (notice,) = life.see(make_seller(text='{"v":2}'))
    assert isinstance(notice, Notice)
    assert notice.fields == {
        "node": "n1",
        "constraint": "licence",
        "reason": "annotation 'mooring.dev/inventory.licence'.v: 2 is not an integer from 1 to 1",
    }
    said = "0/1 nodes are available: 1 node(s) had an unreadable licence inventory."
    assert life.place(make_pod(annotations=_asking())) == said
    assert isinstance(life.place(make_pod()), Bind)


def test_the_pages_code_is_what_runs(toy: Path) -> None:
    """The toy is found by its entry point, as `pip install` would make it."""
    assert (toy / "mooring_licences.py").read_text() in (REPO / "docs/constraints.md").read_text()
