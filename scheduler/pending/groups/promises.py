"""The promised start of a group, and its text in the message of the group's members. Pure.

The text is the only record: a new leader reads the promise from a member's condition, as `kubectl mooring when` does.
"""

import math
import re
from dataclasses import dataclass
from datetime import UTC, datetime

from scheduler.kube.objects import unix_time

# Seconds that nodes may need to restore the VFs of the pods that end.
SETTLE_S = 30.0
NO_START = " No declared end of running pods makes room for the group."
_TEXT = re.compile(r" It (?:starts|should have started) by (\S{1,40}Z)(?: on ([^.]*?))?(?:, after |[.:])")
_WHOLE = re.compile(r"(?:^| )(It (?:starts|should have started) by .*|No declared end of running pods .*)")
_MOST_NODES = 3


@dataclass(frozen=True, slots=True)
class Promise:
    """A start by ``at`` plus `SETTLE_S` (monotonic seconds); ``cause`` is why not ``before``, if that was promised."""

    at: float
    where: str
    nodes: frozenset[str] = frozenset()
    after: str = ""
    before: str = ""
    cause: str = ""

    def text(self, unix_offset_s: float) -> str:
        after = f", after {self.after}" if self.after else ""
        delay = f" It was promised by {self.before} before: {self.cause}." if self.before else ""
        return f" It starts by {self.time(unix_offset_s)} on {self.where}{after}.{delay}"

    def overdue_text(self, unix_offset_s: float) -> str:
        cause = f": {self.cause}" if self.cause else ""
        return f" It should have started by {self.time(unix_offset_s)} on {self.where}{cause}."

    def time(self, unix_offset_s: float) -> str:
        return rfc3339(self.at + SETTLE_S + unix_offset_s)


def rfc3339(unix_s: float) -> str:
    """Return a UNIX time in whole seconds, rounded up."""
    try:
        return datetime.fromtimestamp(math.ceil(round(unix_s, 3)), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        return "9999-12-31T23:59:59Z"


def read_promise(message: str, unix_offset_s: float) -> Promise | None:
    """Return the promise in a member's message; None if it has none."""
    match = _TEXT.search(message)
    unix_s = unix_time(match[1], math.nan) if match is not None else math.nan
    if match is None or math.isnan(unix_s):
        return None
    return Promise(unix_s - SETTLE_S - unix_offset_s, match[2] or "")


def promise_in(message: str) -> str:
    """Return the sentences of a message about the promised start; empty if there are none."""
    match = _WHOLE.search(message)
    return match[1] if match is not None else ""


def some_nodes(nodes: frozenset[str]) -> str:
    names = sorted(nodes)
    rest = f" and {len(names) - _MOST_NODES} more" if len(names) > _MOST_NODES else ""
    return f"node{'s' if len(names) > 1 else ''} {', '.join(names[:_MOST_NODES])}{rest}"
