"""Keys that change are due once each, after a while without a change, and cost nothing before."""

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.pending.debounce import Debounce

QUIET_S, LOUD_S = 3.0, 10.0


@dataclass(slots=True)
class Scan:
    """The same by a look at every key at every time."""

    changes: dict[str, tuple[float, float]] = field(default_factory=dict)

    def change(self, key: str, now: float) -> None:
        first, _ = self.changes.get(key, (now, now))
        if now + QUIET_S <= first + LOUD_S:
            self.changes[key] = first, now + QUIET_S

    def take(self, now: float) -> set[str]:
        due = {key for key, (_, at) in self.changes.items() if at <= now}
        for key in due:
            del self.changes[key]
        return due

    def next_due(self) -> float | None:
        return min((at for _, at in self.changes.values()), default=None)


@dataclass(frozen=True, slots=True)
class CountingKey:
    """A key that counts how often it is looked up."""

    name: int
    looks: list[int] = field(compare=False)

    def __hash__(self) -> int:
        self.looks[0] += 1
        return self.name


@settings(max_examples=400)
@given(st.lists(st.tuples(st.sampled_from(["change", "drop", "take"]), st.sampled_from("abc"), st.integers(0, 4))))
def test_it_is_the_same_as_a_look_at_every_key(steps: list[tuple[str, str, int]]) -> None:
    debounce, scan, now = Debounce[str](QUIET_S, LOUD_S), Scan(), 0.0
    for step, key, seconds in steps:
        now += seconds
        if step == "change":
            debounce.change(key, now)
            scan.change(key, now)
        elif step == "drop":
            debounce.drop(key)
            scan.changes.pop(key, None)
        else:
            found = list(debounce.take(now))
            assert (sorted(found), len(found)) == (sorted(scan.take(now)), len(set(found)))
        assert debounce.next_due() == scan.next_due()


def test_to_find_none_due_takes_the_same_time_with_any_number_of_keys() -> None:
    """The first key is looked up, not all: it is asked before each decision, and anybody may create groups."""
    looks = [0]
    debounce = Debounce[CountingKey](QUIET_S, LOUD_S)
    for name in range(10_000):
        debounce.change(CountingKey(name, looks), name / 10_000)
    looks[0] = 0
    assert list(debounce.take(2.9)) == []
    assert looks[0] <= 2


def test_a_key_that_comes_and_goes_costs_no_more_each_time() -> None:
    looks = [0]
    debounce, key = Debounce[CountingKey](QUIET_S, LOUD_S), CountingKey(1, looks)
    for second in range(1000):
        debounce.drop(key)
        debounce.change(key, float(second))
        assert list(debounce.take(second + 0.5)) == []
    assert looks[0] < 10 * 1000
