"""Show the progress of `init`, which can take minutes: a bar on a terminal, some lines in a log."""

import time
from typing import Self

import structlog
from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, TaskID

_LINE_S = 5.0
_log = structlog.get_logger()


class ProgressDisplay:
    """Counts the prepared VFs of each PF; a context manager, which removes the bar from the screen."""

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        self._bars = Progress(*Progress.get_default_columns(), MofNCompleteColumn(), console=self._console)
        self._tasks: dict[str, TaskID] = {}
        self._next_line = 0.0

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._bars.start()
        return self

    def __exit__(self, *_raised: object) -> None:
        self._bars.stop()

    def update(self, pf: str, done: int, of: int) -> None:
        """Show that ``done`` of the VFs ``of`` this PF are prepared."""
        if self._console.is_terminal:
            if pf not in self._tasks:
                self._tasks[pf] = self._bars.add_task(pf)
            self._bars.update(self._tasks[pf], completed=done, total=of)
        elif time.monotonic() >= self._next_line or done == of:
            self._next_line = time.monotonic() + _LINE_S
            _log.info("preparing", pf=pf, done=done, vfs=of)
