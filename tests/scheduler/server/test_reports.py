"""Rate limits, and the correlation of repeated events."""

from scheduler.server.reports import EventCorrelator, EventRecord, TokenBucket


def test_a_bucket_lets_a_burst_pass_and_then_its_rate() -> None:
    """It returns how long to wait for the next; a clock that goes back changes nothing."""
    bucket = TokenBucket(rate=2.0, burst=3.0, now=10.0)
    assert [bucket.take(10.0) for _ in range(4)] == [0.0, 0.0, 0.0, 0.5]
    assert bucket.take(5.0) == 0.5
    assert bucket.take(10.5) == 0.0
    assert bucket.take(10.5) == 0.5
    assert [bucket.take(1000.0) for _ in range(4)] == [0.0, 0.0, 0.0, 0.5]


def test_a_repeated_event_is_counted_in_the_existing_one() -> None:
    """Another text, reason or object is another event; one that is gone is created again."""
    correlator = EventCorrelator()
    assert correlator.correlate("u", "Failed", "why", EventRecord("e1", 1, "t1"), 0.0) == EventRecord("e1", 1, "t1")
    assert correlator.correlate("u", "Failed", "why", EventRecord("e2", 1, "t2"), 1.0) == EventRecord("e1", 2, "t1")
    assert correlator.correlate("u", "Failed", "other", EventRecord("e3", 1, "t3"), 2.0) == EventRecord("e3", 1, "t3")
    assert correlator.correlate("v", "Failed", "why", EventRecord("e4", 1, "t4"), 2.0) == EventRecord("e4", 1, "t4")
    correlator.forget("u", "Failed", "why")
    assert correlator.correlate("u", "Failed", "why", EventRecord("e5", 1, "t5"), 3.0) == EventRecord("e5", 1, "t5")


def test_an_object_with_too_many_events_gets_no_more() -> None:
    """25, then one in five minutes, as in client-go; others are not delayed by it."""
    correlator = EventCorrelator()
    found = [correlator.correlate("u", "Failed", f"why {number}", EventRecord("e", 1, ""), 0.0) for number in range(30)]
    assert [one is None for one in found] == [False] * 25 + [True] * 5
    assert correlator.correlate("v", "Failed", "why", EventRecord("e", 1, ""), 0.0) is not None
    assert correlator.correlate("u", "Failed", "at last", EventRecord("e", 1, ""), 301.0) is not None
    assert correlator.correlate("u", "Failed", "too soon", EventRecord("e", 1, ""), 302.0) is None


def test_the_correlator_remembers_a_limited_number_of_events() -> None:
    """The least recently seen are dropped: the events of a cluster's whole life must fit into memory."""
    correlator = EventCorrelator()
    correlator.correlate("first", "Failed", "why", EventRecord("e", 1, ""), 0.0)
    for number in range(5000):
        correlator.correlate(f"u{number}", "Failed", "why", EventRecord("e", 1, ""), 0.0)
    again = correlator.correlate("first", "Failed", "why", EventRecord("new", 1, ""), 0.0)
    assert again == EventRecord("new", 1, "")


def test_of_a_message_only_as_much_counts_as_is_written() -> None:
    """A message may be as long as an object's text, and thousands are remembered."""
    correlator, written = EventCorrelator(), "x" * 1024
    correlator.correlate("u", "Failed", f"{written}1", EventRecord("e1", 1, "t1"), 0.0)
    again = correlator.correlate("u", "Failed", f"{written}2", EventRecord("e2", 1, "t2"), 1.0)
    assert again == EventRecord("e1", 2, "t1")
    correlator.forget("u", "Failed", f"{written}3")
    assert correlator.correlate("u", "Failed", written, EventRecord("e3", 1, "t3"), 2.0) == EventRecord("e3", 1, "t3")
