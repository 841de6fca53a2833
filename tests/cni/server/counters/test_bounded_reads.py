"""Sources that hang, fail or are many: what is not read in time is told, and costs the others nothing."""

import threading
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from cni.server.counters.bounded_reads import BoundedReads, ReadLimits
from tests.support.polling import wait_until

LIMITS = ReadLimits(each_s=0.2, all_s=1.0, most_threads=2)


@pytest.fixture
def driver() -> Iterator[threading.Event]:
    """A driver that answers once this is set."""
    answers = threading.Event()
    yield answers
    answers.set()


def threads() -> int:
    return sum(thread.name.startswith("counters ") for thread in threading.enumerate())


def hanging(driver: threading.Event) -> Callable[[], None]:
    def read() -> None:
        driver.wait(60)

    return read


def test_all_that_answer_are_read(driver: threading.Event) -> None:
    """Each by a thread of its own, never the caller's."""
    read: dict[str, int] = {}

    def note(name: str) -> None:
        read[name] = threading.get_ident()

    reads = {name: partial(note, name) for name in "abcdefgh"}
    assert not BoundedReads().run(reads)
    assert read.keys() == set("abcdefgh")
    assert threading.get_ident() not in read.values()


def test_sources_that_hang_hide_none_of_the_others(driver: threading.Event) -> None:
    """More of them than are read at once, and before the others in any order."""
    read: set[str] = set()
    reads: dict[str, Callable[[], None]] = {f"{where}{n}": hanging(driver) for n in range(3) for where in "az"}
    reads |= {name: partial(read.add, name) for name in ("m1", "m2")}
    reader = BoundedReads(LIMITS)
    reader.run(reads)
    assert reader.run(reads) == reads.keys() - {"m1", "m2"}
    assert read == {"m1", "m2"}


def test_however_many_are_slow_each_time_the_others_have_their_turn(driver: threading.Event) -> None:
    """More than there is time for, and all end between two calls: those not begun come first, the slow ones last."""
    read: set[str] = set()
    slow: dict[str, Callable[[], None]] = {f"z{number:02}": hanging(driver) for number in range(12)}
    others = {f"m{number}": partial(read.add, f"m{number}") for number in range(3)}
    reader = BoundedReads(LIMITS)
    for _ in range(3):
        reader.run(slow | others)
        driver.set()
        wait_until(lambda: not threads())
        driver.clear()
    assert read == others.keys()


def test_a_source_that_hangs_has_one_thread_however_often_it_is_asked(driver: threading.Event) -> None:
    """And is read again once that has ended."""
    reader = BoundedReads(LIMITS)
    wait_until(lambda: not threads())
    for _ in range(5):
        assert reader.run({"pod": hanging(driver)}) == {"pod"}
    assert threads() == 1
    driver.set()
    wait_until(lambda: not threads())
    assert not reader.run({"pod": hanging(driver)})


def test_a_source_that_fails_is_no_late_one(driver: threading.Event) -> None:
    """A namespace that is gone, or a bug: whatever is wrong with one keeps no other."""

    def gone() -> None:
        raise FileNotFoundError("no such namespace")

    def broken() -> None:
        raise KeyError("bug")

    read: set[str] = set()
    assert not BoundedReads().run({"a": gone, "b": broken, "c": lambda: read.add("c")})
    assert read == {"c"}
