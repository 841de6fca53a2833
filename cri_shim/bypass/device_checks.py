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
        self._process: subprocess.Popen[bytes] | None = None
        self._uses_config = True
        self._began_s = float("-inf")
        self.failure = ""

    def advance(self) -> None:
        """Start a check if it is due, take the result of a finished one, or kill one that takes too long."""
        now_s = self._clock()
        if self._process is None:
            if now_s - self._began_s >= INTERVAL_S:
                self._begin(use_config=True)
                self._began_s = now_s
            return
        status = self._process.poll()
        if status is None and now_s - self._began_s > _LONGEST_S:
            self._process.kill()
            status = self._process.wait()
        if status == _USAGE and self._uses_config:
            # The configuration file may be the fault that broke the shim, so try again with an installation's defaults.
            self._begin(use_config=False)
        elif status is not None:
            self._process = None
            self.failure = f"exit status {status}" if status else ""

    def stop(self) -> None:
        """Kill a running check; the next bypass starts with a new one."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._process, self._began_s, self.failure = None, float("-inf"), ""

    def _begin(self, *, use_config: bool) -> None:
        self._uses_config = use_config
        command = [*self._command, *(() if use_config else ("--config", str(_DEFAULTS)))]
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
