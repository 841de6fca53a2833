"""Which reasons the inventory tells: those that last, not those of one look between two changes."""

from collections.abc import Mapping

import pytest

from advertiser.inventory.debounce import CONFIRM_S, DebounceResult, ScanPeriod, Sighting, debounce
from mooring.annotations.inventory import Inventory, Out, Pf
from mooring.indexes import Indexes

HELD, LOST, GONE = "held by pod 8c2f", "lost: on the host although pod 8c2f holds it", "the VF is gone"
KEY = ("0000:04:00.0", 3)


def look(*out: Out) -> Inventory:
    pf = Pf("enp4s0f0", KEY[0], "ethernet", "rail0", 100, 100, True, Indexes.of(range(8)), "0000:04:00.2", out=out)
    return Inventory("boot", (pf,))


def out(why: str, *vfs: int, rate: int = 0) -> Out:
    return Out(Indexes.of(vfs or (3,)), why, rate)


def judged(at_s: float, before: DebounceResult | None, *found: Out, took_s: float = 0.0) -> DebounceResult:
    sightings: Mapping[tuple[str, int], Sighting] = before.sightings if before else {}
    return debounce(look(*found), sightings, ScanPeriod(at_s - took_s, at_s))


def told(judgement: DebounceResult) -> tuple[Out, ...]:
    return judgement.inventory.pfs[0].out


@pytest.mark.parametrize("why", [HELD, LOST, GONE, "no driver", "no RDMA device"])
def test_a_reason_of_one_look_is_never_told(why: str) -> None:
    """It has ended by the next look, which is due after `CONFIRM_S`."""
    first = judged(10.0, None, out(why))
    assert (told(first), first.due_s, first.pending) == ((), 10.0 + CONFIRM_S, True)
    second = judged(10.0 + CONFIRM_S, first)
    assert (told(second), second.due_s, second.sightings) == ((), None, {})


def test_a_reason_that_lasts_is_told_with_its_rate_and_cleared_at_once() -> None:
    """Looks before it is due do not tell it, and do not start its time again."""
    state = judged(0.0, None, out(HELD, rate=5000))
    state = judged(1.0, state, out(HELD, rate=5000))
    assert told(state) == ()
    state = judged(1.6, state, out(HELD, rate=5000))
    assert (told(state), state.pending) == ((out(HELD, rate=5000),), False)
    assert told(judged(1.7, state)) == ()


def test_a_reason_that_comes_and_goes_starts_again_each_time() -> None:
    """A VF that many pods use in turn is found held at many looks, and is never out."""
    state = None
    for number in range(20):
        state = judged(number * 1.0, state, *([out(HELD)] if number % 2 else []))
        assert told(state) == ()


@pytest.mark.parametrize("why", ["drained", "preparing", "bound to vfio-pci", "the PF is in switchdev mode"])
def test_what_somebody_decided_is_told_at_once(why: str) -> None:
    """Nothing would be gained by a wait: this is not a moment in a VF's move."""
    state = judged(0.0, None, out(why))
    assert (told(state), state.due_s, state.pending) == ((out(why),), None, False)


def test_a_reason_that_follows_a_told_one_is_told_after_its_own_time() -> None:
    """Until then the VF stays out for the reason that was told: it was not usable in between."""
    state = judged(2.0, judged(0.0, None, out(HELD)), out(HELD))
    state = judged(3.0, state, out(LOST))
    assert told(state) == (out(HELD),)
    assert told(judged(4.6, state, out(LOST))) == (out(LOST),)


def test_what_was_told_is_looked_at_again_after_as_long_as_it_has_lasted() -> None:
    """Its end may announce itself by no event; one that stays for hours costs few looks."""
    state = judged(0.0, None, out(HELD))
    for at_s, due_s in ((1.5, 3.0), (3.0, 6.0), (6.0, 12.0), (12.0, 22.0), (22.0, 32.0)):
        state = judged(at_s, state, out(HELD))
        assert state.due_s == due_s
    # A new reason of another VF is due by its own time.
    assert judged(23.0, state, out(HELD, 3, 4)).due_s == 23.0 + CONFIRM_S


def test_a_look_that_takes_long_confirms_only_what_it_began_to_see_late_enough() -> None:
    """Two slow looks in a row may have read the VF at moments that are close together."""
    state = judged(3.0, None, out(HELD), took_s=3.0)
    state = judged(6.0, state, out(HELD), took_s=3.0)
    assert told(state) == ()
    assert told(judged(6.1, state, out(HELD))) == (out(HELD),)


def test_vfs_of_one_reason_share_an_entry_again() -> None:
    """As the inventory was built: equal texts mean that nothing changed."""
    found = (out(HELD, 3, 5), out("drained", 4))
    assert told(judged(2.0, judged(0.0, None, *found), *found)) == found
