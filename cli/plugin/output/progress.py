"""Show the progress of long work on a terminal; nothing if it is short, or without a terminal."""

from collections.abc import Callable
from typing import TextIO

# Work that is done sooner, in seconds, shows no progress.
_PATIENCE_S = 0.5


class Progress:
    """A line of stderr that is overwritten, and cleared at the end."""

    def __init__(self, stream: TextIO, clock: Callable[[], float]) -> None:
        self._stream = stream if stream.isatty() else None
        self._clock = clock
        self._begun = clock()
        self._is_shown = False

    def report(self, what: str, count: int) -> None:
        if self._stream is None or self._clock() - self._begun < _PATIENCE_S:
            return
        self._is_shown = True
        self._stream.write(f"\r\x1b[K{what}: {count} read")
        self._stream.flush()

    def end(self) -> None:
        if self._stream is not None and self._is_shown:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
