"""Rate limits, and the correlation of repeated events."""

from scheduler.server.reports import EventCorrelator, EventRecord, TokenBucket


def test_a_bucket_lets_a_burst_pass_and_then_its_rate() -> None:
    """It returns how long to wait for the next; a clock that goes back changes nothing."""
    bucket = TokenBucket(rate=2.0, burst=3.0, now=10.0)
    assert [bucket.take(10.0) for _ in range(4)] == [0.0, 0.0, 0.0, 0.5]
    assert [bucket.take(now) for now in (5.0, 10.5, 10.5)] == [0.5, 0.0, 0.5]
    assert [bucket.take(1000.0) for _ in range(4)] == [0.0, 0.0, 0.0, 0.5]


class Correlator(EventCorrelator):
    def written(self, uid: str, reason: str, message: str, name: str, now: float = 0.0) -> EventRecord | None:
        """Return how an event is written that would be this object if it is new."""
        return self.correlate(uid, reason, message, EventRecord(name, 1, f"since {name}"), now)


def test_a_repeated_event_is_counted_in_the_existing_one() -> None:
    """Another text, reason or object is another event; one that is gone is created again.

    Of a message only as much counts as is written: it may be as long as an object's text.
    """
    correlator, long = Correlator(), "x" * 1024
    for uid, reason, message, name, expected in (
        ("u", "Failed", "why", "e1", ("e1", 1)),
        ("u", "Failed", "why", "e2", ("e1", 2)),
        ("u", "Failed", "other", "e3", ("e3", 1)),
        ("v", "Failed", "why", "e4", ("e4", 1)),
        ("u", "Bound", "why", "e5", ("e5", 1)),
        ("u", "Failed", f"{long}1", "e6", ("e6", 1)),
        ("u", "Failed", f"{long}2", "e7", ("e6", 2)),
    ):
        record = EventRecord(*expected, f"since {expected[0]}")
        assert correlator.written(uid, reason, message, name, 1.0) == record
    for message in ("why", f"{long}3"):
        correlator.forget("u", "Failed", message)
        assert correlator.written("u", "Failed", message, "again", 3.0) == EventRecord("again", 1, "since again")


def test_an_object_with_too_many_events_gets_no_more() -> None:
    """25, then one in five minutes, as in client-go; others are not delayed by it."""
    correlator = Correlator()
    records = [correlator.written("u", "Failed", f"why {number}", "e") for number in range(30)]
    assert [record is None for record in records] == [False] * 25 + [True] * 5
    assert correlator.written("v", "Failed", "why", "e") is not None
    assert correlator.written("u", "Failed", "at last", "e", 301.0) is not None
    assert correlator.written("u", "Failed", "too soon", "e", 302.0) is None


def test_the_correlator_remembers_a_limited_number_of_events() -> None:
    """The least recently seen are dropped: the events of a cluster's whole life must fit into memory."""
    correlator = Correlator()
    for uid in ("first", *map(str, range(5000))):
        correlator.written(uid, "Failed", "why", "e")
    assert correlator.written("first", "Failed", "why", "new") == EventRecord("new", 1, "since new")
