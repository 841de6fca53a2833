"""A watch of a socket below a folder, before the runtime with configured answers; its clock is the test's."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cri_shim.bypass.watch import Paths, Watch
from mooring.records.shim_bypass import NAME, ShimBypass, read_shim_bypass


@dataclass(slots=True)
class Clock:
    """Monotonic seconds that pass when the test says so."""

    now_s: float = 1000.0

    def __call__(self) -> float:
        return self.now_s


class WatchedHost:
    """The sockets and the run folder of a host, and the watch of them."""

    def __init__(self, folder: Path) -> None:
        self.clock = Clock()
        self.paths = Paths(folder / "cri.sock", folder / "runtime.sock", folder / "run")
        self.watch = self.begin()

    def begin(self, check_flags: Sequence[str] = ("--state", "/nonexistent"), *, never_bypass: bool = False) -> Watch:
        """Start the watch, again too: nothing of an earlier one is left in memory."""
        self.watch = Watch(self.paths, check_flags, never_bypass=never_bypass, clock=self.clock)
        return self.watch

    async def look(self, seconds: int) -> None:
        """Let so many seconds pass, with a look at the end of each."""
        for _ in range(seconds):
            self.clock.now_s += 1
            await asyncio.to_thread(self.watch.advance)

    def is_bypassed(self) -> bool:
        listen = self.paths.listen
        return listen.is_symlink() and listen.readlink() == self.paths.runtime

    def has_record(self) -> bool:
        return (self.paths.run / NAME).exists()

    @property
    def record(self) -> ShimBypass | None:
        path = self.paths.run / NAME
        return read_shim_bypass(path.read_text()) if path.exists() else None


@pytest.fixture
def watched(tmp_path: Path) -> WatchedHost:
    return WatchedHost(tmp_path)


@pytest.fixture
async def served_runtime(watched: WatchedHost, fake_runtime: Any) -> Any:
    """The runtime, which answers."""
    await fake_runtime.start(watched.paths.runtime)
    yield fake_runtime
    await fake_runtime.stop()
