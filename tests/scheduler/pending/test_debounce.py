"""Keys that change are due once each, after a while without a change, and cost nothing before."""

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.pending.debounce import Debounce

QUIET_S, LOUD_S = 3.0, 10.0


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
    debounce, now = Debounce[str](QUIET_S, LOUD_S), 0.0
    # By key: when it changed first, and when it is due.
    times: dict[str, tuple[float, float]] = {}
    for step, key, seconds in steps:
        now += seconds
        if step == "change":
            debounce.change(key, now)
            first, _ = times.get(key, (now, now))
            if now + QUIET_S <= first + LOUD_S:
                times[key] = first, now + QUIET_S
        elif step == "drop":
            debounce.drop(key)
            times.pop(key, None)
        else:
            due = {key for key, (_, at) in times.items() if at <= now}
            times = {key: time for key, time in times.items() if key not in due}
            assert sorted(debounce.take(now)) == sorted(due)
        assert debounce.next_due() == min((at for _, at in times.values()), default=None)


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
