"""What goes wrong with a request or a watch, chosen by a seed."""

import random
from dataclasses import dataclass
from typing import Literal, get_args

# How long, in seconds, a scheduler may not know of a change: its watch is late, torn, and listed again with backoff.
STALE_S = 45.0
Fate = Literal[
    "answered",
    "refused",  # 429, 500 or 503, nothing done
    "forbidden",  # 403, nothing done: a Binding, while somebody's webhook refuses them
    "failed after",  # 500 or 504, but done
    "broken before",  # the connection breaks, nothing done
    "broken after",  # it breaks when all is done
    "silent before",  # no answer ever, nothing done
    "silent after",  # no answer ever, but done
    "late",  # done and answered after seconds, maybe when nobody waits any more
    "old",  # done at once, answered after seconds, when things may be different
]
_FAULTS: tuple[Fate, ...] = tuple(fate for fate in get_args(Fate) if fate not in ("answered", "forbidden"))
StreamFate = Literal["carried", "doubled", "late", "ended", "torn", "stale"]
_STREAM_FAULTS: tuple[StreamFate, ...] = ("doubled", "late", "late", "late", "ended", "torn", "stale", "stale")


@dataclass
class Faults:
    """How often they happen, one in so many (0: never), and the source of chance."""

    source: random.Random
    one_in_requests: int = 8
    one_in_batches: int = 6
    # How late "late" is at the most, in seconds. A client gives a request up after 5.
    latest_s: float = 4.0
    forbids_binds: bool = False

    def fate(self, path: str) -> Fate:
        if self.forbids_binds and path.endswith("/binding"):
            return "forbidden"
        return self.source.choice(_FAULTS) if self._strikes(self.one_in_requests) else "answered"

    def stream_fate(self) -> StreamFate:
        return self.source.choice(_STREAM_FAULTS) if self._strikes(self.one_in_batches) else "carried"

    def code(self) -> tuple[int, dict[str, str]]:
        """Return how a request is refused before anything is done, and its headers."""
        return self.source.choice(((429, {"Retry-After": "1"}), (429, {}), (500, {}), (503, {})))

    def delay_s(self) -> float:
        return self.source.uniform(0.1, self.latest_s)

    def stop(self) -> None:
        self.one_in_requests = self.one_in_batches = 0
        self.forbids_binds = False

    def _strikes(self, one_in: int) -> bool:
        return one_in > 0 and self.source.randrange(one_in) == 0
