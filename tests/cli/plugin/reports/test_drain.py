"""Which entries of a drain annotation `drain` and `undrain` change, and how drained VFs are shown."""

import json

import pytest

from cli.plugin.reports import nodes
from cli.plugin.reports.drain import DrainError, Target, named_targets, offered_targets, plan_drain, plan_undrain
from cli.plugin.reports.tables import draw
from cli.plugin.reports.use import drained_vfs, uses
from mooring import names
from mooring.annotations.drain import DRAINED, Drain
from mooring.annotations.inventory import Inventory, Out
from mooring.indexes import Indexes
from tests.cli.plugin.cluster import BOOT, as_nodes, node, pf

OFFER = Inventory(BOOT, (pf(0), pf(1)))


def states(drain: Drain, *targets: Target, reason: str | None = None) -> list[str]:
    return [change.state for change in plan_drain(drain, targets, reason).changes]


def test_without_options_all_pfs_are_named_and_with_them_these_only() -> None:
    assert offered_targets("n1", OFFER, (), "") == [Target("pf0"), Target("pf1")]
    assert offered_targets("n1", OFFER, ("pf1",), "") == [Target("pf1")]
    assert offered_targets("n1", OFFER, ("pf1",), "0,2-3") == [Target("pf1", Indexes.of([0, 2, 3]))]


def test_vfs_are_named_by_pci_address_without_their_pf() -> None:
    """Addresses of several PFs may be mixed."""
    found = offered_targets("n1", OFFER, (), "0000:04:00.3,0000:05:00.2,0000:04:00.2")
    assert found == [Target("pf0", Indexes.of([0, 1])), Target("pf1", Indexes.of([0]))]


@pytest.mark.parametrize(
    ("pfs", "vfs", "rule"),
    [
        (("pf7",), "", "node 'n1' offers no PF 'pf7'; its PFs are pf0, pf1"),
        ((), "3", "--vf '3': indexes need one PF: name it by --pf, or name the VFs by PCI address"),
        (("pf0", "pf1"), "3", "--vf '3': indexes need one PF"),
        (("pf0",), "3-5", "PF 'pf0' of node 'n1' offers no VF 4-5; its VFs are 0-3"),
        (("pf0",), "5-3", "--vf '5-3': range '5-3' does not ascend"),
        (("pf0",), "x", "--vf 'x': 'x' is not a range such as '7' or '0-9'"),
        ((), "0000:06:00.2", "node 'n1' offers no VF '0000:06:00.2'"),
        (("pf1",), "0000:04:00.2", "node 'n1' offers no VF '0000:04:00.2'"),
        ((), "0000:04:00.2,7", "--vf '7' is not a PCI address"),
    ],
)
def test_what_the_node_does_not_offer_is_refused_with_what_it_does(pfs: tuple[str, ...], vfs: str, rule: str) -> None:
    with pytest.raises(DrainError) as refused:
        offered_targets("n1", OFFER, pfs, vfs)
    assert str(refused.value).startswith(rule)


def test_a_drain_that_is_there_already_changes_nothing() -> None:
    """Its reason stays unless there is a new one."""
    drain = plan_drain({}, [Target("pf0"), Target("pf1", Indexes.of([2]))], "cable").drain
    assert drain == {"pf0": "cable", "pf1/2": "cable"}
    again = plan_drain(drain, [Target("pf0"), Target("pf0", Indexes.of([1])), Target("pf1", Indexes.of([2]))], None)
    assert again.drain == drain
    assert [(change.state, change.reason) for change in again.changes] == [("already drained", "cable")] * 3
    assert states(drain, Target("pf0"), reason="cable") == ["already drained"]
    assert states(drain, Target("pf0"), reason="firmware") == ["drained"]
    assert states(drain, Target("pf1", Indexes.of([2, 3]))) == ["drained"]


def test_undrain_gives_back_all_that_is_part_of_what_is_named() -> None:
    """A PF with its VFs; entries of other PFs stay."""
    drain = {"pf0": "cable", "pf0/1": "", "pf1/2": "bad"}
    assert plan_undrain(drain, [Target("pf0")]).drain == {"pf1/2": "bad"}
    plan = plan_undrain(drain, [Target("pf1", Indexes.of([1]))])
    assert (plan.drain, plan.changes[0].state) == (drain, "not drained")
    assert plan_undrain(drain, named_targets(drain, OFFER, "n1", (), "")).drain == {}


def test_one_vf_of_a_pf_that_is_drained_as_a_whole_is_not_given_back_alone() -> None:
    with pytest.raises(DrainError, match="PF 'pf0' is drained as a whole: undrain the PF, then drain those of its VFs"):
        plan_undrain({"pf0": ""}, [Target("pf0", Indexes.of([1]))])


def test_a_pf_that_the_node_has_no_longer_is_undrained_by_its_name() -> None:
    """It may have been renamed, or the node publishes nothing."""
    drain = {"old": ""}
    assert named_targets(drain, OFFER, "n1", ("old",), "") == [Target("old")]
    assert named_targets(drain, None, "n1", ("old",), "") == [Target("old")]
    with pytest.raises(DrainError, match="node 'n1' publishes no inventory: its VFs are not known"):
        named_targets(drain, None, "n1", ("old",), "3")


def test_nodes_shows_what_is_drained_and_why() -> None:
    """VFs of one PF may have several reasons; a PF without a VF left is drained in its state."""
    out = (Out(Indexes.of(range(4)), DRAINED),)
    document = node("n1", (pf(0, out=out), pf(1, out=(Out(Indexes.of([3]), DRAINED),))))
    annotations = document["metadata"]["annotations"]
    annotations[names.DRAIN] = json.dumps(["pf0", "pf0/2", "pf1/3"])
    annotations[names.DRAIN_REASONS] = json.dumps({"pf0": "new cable", "pf0/2": "resets"})
    found = uses(as_nodes(document), [])
    rows = draw(nodes.report(found, wide=True).tables, coloured=False).splitlines()[1:]
    assert [row.split()[1:3] for row in rows] == [["ready,drained", "pf0"], ["ready", "pf1"]]
    assert rows[0].endswith("0-1,3: drained: new cable; 2: drained: resets")
    assert rows[1].endswith("3: drained")
    shown = [(one.pf, str(one.vfs), one.reason) for one in drained_vfs(found)]
    assert shown == [("pf0", "0-1,3", "new cable"), ("pf0", "2", "resets"), ("pf1", "3", "")]
