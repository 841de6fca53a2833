"""Run the check for containers without devices repeatedly while no shim runs it, each time in a new process.

The check imports the same modules as the shim, and may fail for the same reason. Its exit status shows that, and does
not stop the bypass.
"""

import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

# The pause between checks and the limit of one check, in seconds: together within the ten minutes in which a container
# that restarted without the shim must be found.
INTERVAL_S, _LONGEST_S = 240.0, 240.0
_USAGE = 2
_DEFAULTS = Path(__file__).with_name("defaults.yaml")


class DeviceChecks:
    """Runs the checks of one bypass; ``flags`` are those of `cri_shim.devices`, ``clock`` returns monotonic seconds."""

    def __init__(self, flags: Sequence[str], clock: Callable[[], float] = time.monotonic) -> None:
        self._command = [sys.executable, "-m", "cri_shim.devices", *flags]
        self._clock = clock
        self._running: subprocess.Popen[bytes] | None = None
        self._configured = True
        self._began_s = float("-inf")
        self.failure = ""

    def advance(self) -> None:
        """Start a check if it is due, take the result of a finished one, or kill one that takes too long."""
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
            # The configuration file may be the fault that broke the shim, so try again with an installation's defaults.
            self._begin(configured=False)
        elif status is not None:
            self._running = None
            self.failure = f"exit status {status}" if status else ""

    def stop(self) -> None:
        """Kill a running check; the next bypass starts with a new one."""
        if self._running is not None:
            self._running.kill()
            self._running.wait()
        self._running, self._began_s, self.failure = None, float("-inf"), ""

    def _begin(self, *, configured: bool) -> None:
        self._configured = configured
        command = [*self._command, *(() if configured else ("--config", str(_DEFAULTS)))]
        self._running = subprocess.Popen(command, stdin=subprocess.DEVNULL)
