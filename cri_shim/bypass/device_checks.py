"""Run the check for containers without devices while no shim does: a process of its own, again and again.

It imports what the shim imports, and may break as the shim does: then its exit status says so, and nothing else ends.
"""

import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

# What restarts past the shim is to be found within ten minutes: the pause, and the longest time of one check.
INTERVAL_S, _LONGEST_S = 240.0, 240.0
_USAGE = 2
_DEFAULTS = Path(__file__).with_name("defaults.yaml")


class DeviceChecks:
    """The checks of one bypass; ``flags`` are those of `cri_shim.devices`, ``clock`` is monotonic, in seconds."""

    def __init__(self, flags: Sequence[str], clock: Callable[[], float] = time.monotonic) -> None:
        self._command = [sys.executable, "-m", "cri_shim.devices", *flags]
        self._clock = clock
        self._running: subprocess.Popen[bytes] | None = None
        self._configured = True
        self._began_s = float("-inf")
        self.failure = ""

    def advance(self) -> None:
        """Begin a check that is due; take the result of one that has ended, end one that takes too long."""
        now_s = self._clock()
        if self._running is None:
            if now_s - self._began_s >= INTERVAL_S:
                self._begin(configured=True)
                self._began_s = now_s
            return
        status = self._running.poll()
        if status is None and now_s - self._began_s > _LONGEST_S:
            self._running.kill()
            status = self._running.wait()
        if status == _USAGE and self._configured:
            # The configuration file may be what has broken the shim; the defaults are those of an installation.
            self._begin(configured=False)
        elif status is not None:
            self._running = None
            self.failure = f"exit status {status}" if status else ""

    def stop(self) -> None:
        """End a check that runs; the next bypass begins with one."""
        if self._running is not None:
            self._running.kill()
            self._running.wait()
        self._running, self._began_s, self.failure = None, float("-inf"), ""

    def _begin(self, *, configured: bool) -> None:
        self._configured = configured
        command = [*self._command, *(() if configured else ("--config", str(_DEFAULTS)))]
        self._running = subprocess.Popen(command, stdin=subprocess.DEVNULL)
