"""Writes of changed rates: how many are under way, conflicts, refusals, writes without an answer, signatures."""

from mooring import names
from mooring.annotations.rates import LAST_GENERATION, VfRates
from scheduler.cycle.instructions import ReportRates, WriteRatesResult
from scheduler.state.machine import Machine
from tests.scheduler.group_life import Life
from tests.scheduler.state.rates.edited_rates import WRITTEN, EditedRates


def test_no_generation_is_written_that_no_reader_would_believe(edited: EditedRates) -> None:
    """A node says what it likes: that no generation comes after the one it has in force."""
    edited.bound("p", {"min_tx_rate": 20_000})
    edited.put_in_force("p", LAST_GENERATION)
    edited.edit("p", {"min_tx_rate": 10_000})
    assert edited.told() == [("Infeasible", "node n1 reports that the last generation is in force")]


def test_a_write_that_was_not_carried_out_reserves_nothing(edited: EditedRates) -> None:
    """After a conflict it is decided again by what the watch shows; a pod that waits for the bandwidth gets it."""
    edited.change(20_000, 90_000)
    (order,) = edited.writes()
    assert edited.see(edited.new("", {"min_tx_rate": 70_000})) == []
    edited.finish(order, WriteRatesResult("changed"))
    assert edited.left == 70_000
    edited.now += 20.0
    assert len(edited.binds()) == 1
    assert [reason for reason, _ in edited.told()] == ["Deferred"]


def test_one_write_is_under_way_for_a_pod_and_a_second_passes_between_two(edited: EditedRates) -> None:
    """However often it is edited meanwhile: the last edit counts."""
    edited.change(20_000, 21_000)
    (order,) = edited.writes()
    for rate in range(22_000, 30_000, 1_000):
        edited.edit("p", {"min_tx_rate": rate})
        assert edited.writes() == []
    edited.finish(order, WRITTEN)
    edited.annotate("p", dict(order.annotations))
    assert edited.writes() == []
    edited.now += 1.0
    (order,) = edited.writes()
    assert (order.rates.rates, order.rates.generation) == ((VfRates(29_000),), 2)


def test_writes_under_way_are_few_whoever_edits(edited: EditedRates) -> None:
    """Twenty pods of one user are edited; eight writes at once, and none of the pods is passed over."""
    edited.show_node(vfs=20)
    for number in range(20):
        edited.bound(f"p{number}", {"min_tx_rate": 1_000})
        edited.edit(f"p{number}", {"min_tx_rate": 2_000})
    seen = set()
    orders = edited.writes()
    while orders:
        assert len(orders) <= 8
        seen |= {order.pod.metadata.name for order in orders}
        for order in orders:
            edited.carry_out(order)
        orders = edited.writes()
    assert len(seen) == 20


def test_writes_without_an_answer_hold_up_nobody_else(edited: EditedRates) -> None:
    """As of pods that have grown too large for the API server's storage: what they were to have stays reserved."""
    edited.show_node(vfs=20)
    for number in range(10):
        edited.bound(f"p{number}", {"min_tx_rate": 1_000})
    for number in range(9):
        edited.edit(f"p{number}", {"min_tx_rate": 2_000})
    stuck = edited.writes()
    assert len(stuck) == 8
    assert edited.machine.rate_changes.next_due() == 1.0
    edited.now += 10.0
    (order,) = edited.writes()
    edited.carry_out(order)
    edited.edit("p9", {"min_tx_rate": 2_000})
    edited.write()
    assert edited.left == 90_000 - 10 * 2_000
    for order in stuck:
        edited.carry_out(order)
    assert edited.left == 90_000 - 10 * 2_000


def test_a_refusal_of_the_api_server_is_told_and_tried_again_after_a_minute(edited: EditedRates) -> None:
    edited.change(20_000, 30_000)
    (order,) = edited.writes()
    told = [one for one in edited.finish(order, WriteRatesResult("refused", "no")) if isinstance(one, ReportRates)]
    assert [(one.reason, one.message) for one in told] == [("Deferred", "the API server rejected the rates: no")]
    assert edited.left == 70_000
    edited.now += 59.0
    assert edited.writes() == []
    edited.now += 2.0
    assert len(edited.writes()) == 1


def test_a_pod_that_is_deleted_meanwhile_keeps_nothing(edited: EditedRates) -> None:
    edited.change(20_000, 30_000)
    (order,) = edited.writes()
    edited.remove("p")
    assert edited.left == 90_000
    edited.finish(order, WRITTEN)
    assert (edited.left, edited.machine.rate_changes.next_due()) == (90_000, None)


def test_rates_are_signed_where_assignments_are(life: Life) -> None:
    edited = EditedRates(life.successor(Machine("mooring", sign_rates=lambda text: f"signed {text}")))
    edited.change(20_000, 30_000)
    (order,) = edited.writes()
    assert order.annotations[names.RATES_SIGNATURE] == f"signed {order.annotations[names.RATES]}"
