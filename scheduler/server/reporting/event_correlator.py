"""Rate limits for events, and which events were sent already, as in client-go's event correlator. Pure: time is an
argument.
"""

from collections import OrderedDict
from dataclasses import dataclass

# client-go's event correlator drops an object's events beyond 25, except one in 5 min.
_EVENTS_AT_ONCE = 25
_EVENTS_PER_S = 1 / 300
# Number of remembered objects and texts; the least recently used are dropped.
_REMEMBERED = 4096


class TokenBucket:
    """A token bucket: ``burst`` at once, then ``rate`` a second."""

    def __init__(self, rate: float, burst: float, now: float) -> None:
        self._rate = rate
        self._burst = burst
        self._tokens = burst
        self._at = now

    def take(self, now: float) -> float:
        """Take a token and return 0, or return the seconds until there is one."""
        self._tokens = min(self._burst, self._tokens + max(now - self._at, 0.0) * self._rate)
        self._at = max(now, self._at)
        if self._tokens < 1:
            return (1 - self._tokens) / self._rate
        self._tokens -= 1
        return 0.0


@dataclass(frozen=True, slots=True)
class EventRecord:
    """How an event is to be written: as the object ``name``, for the ``count``-th time since ``first``."""

    name: str
    count: int
    first: str


class EventCorrelator:
    """The events that were written: a repetition is counted in the existing one, and too many are dropped."""

    def __init__(self) -> None:
        self._records: OrderedDict[tuple[str, str, str], EventRecord] = OrderedDict()
        self._paces: OrderedDict[str, TokenBucket] = OrderedDict()

    def tell(self, uid: str, reason: str, message: str, record: EventRecord, now: float) -> EventRecord | None:
        """Return how to write an event, ``record`` if it is new; None if this object has had too many.

        ``uid`` is that of the object that the event is about, ``now`` in seconds of any clock.
        """
        bucket = self._paces.pop(uid, None) or TokenBucket(_EVENTS_PER_S, _EVENTS_AT_ONCE, now)
        self._paces[uid] = bucket
        if len(self._paces) > _REMEMBERED:
            self._paces.popitem(last=False)
        if bucket.take(now) > 0:
            return None
        key = (uid, reason, message)
        last_record = self._records.pop(key, None)
        event_record = (
            record if last_record is None else EventRecord(last_record.name, last_record.count + 1, last_record.first)
        )
        self._records[key] = event_record
        if len(self._records) > _REMEMBERED:
            self._records.popitem(last=False)
        return event_record

    def forget(self, uid: str, reason: str, message: str) -> None:
        """Record that an event no longer exists: API servers delete them after an hour."""
        self._records.pop((uid, reason, message), None)
