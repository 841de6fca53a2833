"""Watch the shim's socket: bypass a failed shim, and end the bypass when the shim serves again.

All state is visible on the host: a link at the path is a bypass, and the record has its start time. So this program may
stop and start at any moment.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from threading import Event

from cri_shim.bypass.device_checks import DeviceChecks
from cri_shim.bypass.kubelet_connections import Connection, close_connections, open_among
from cri_shim.bypass.probe import Probe, call_version
from cri_shim.bypass.socket_link import SocketLink
from cri_shim.plan.bypass_rule import UNSERVED_S, BypassRule
from mooring.errors import RecordError
from mooring.files import ForeignFileError, read_record, write_shared
from mooring.records.shim_bypass import NAME, ShimBypass, dump_shim_bypass, read_shim_bypass

_PERIOD_S = 1.0
# Seconds for an answer to Version; a shim or runtime that takes longer counts as not answering.
_ANSWER_S = 4.0
# Seconds between attempts to close the connections that bypass the shim.
_CLOSE_S = 60.0
_PROGRAM = "mooring-shim-bypass"
_FAILURE = f"mooring-cri-shim has not served for {UNSERVED_S:.0f} s: journalctl -u mooring-cri-shim"


@dataclass(frozen=True, slots=True)
class Paths:
    """The shim's socket, the runtime's, and the folder of what lasts until the next boot."""

    listen: Path
    runtime: Path
    run: Path


class Watch:
    """Watches one socket. ``never_bypass``: no bypass is allowed, and an existing link is removed."""

    def __init__(
        self,
        paths: Paths,
        check_flags: Sequence[str],
        *,
        never_bypass: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._paths = paths
        self._link = SocketLink(paths.listen, paths.runtime)
        self._checks = DeviceChecks(check_flags, clock)
        self._never_bypass = never_bypass
        self._clock = clock
        self._rule = BypassRule(clock())
        self._bypass_connections: frozenset[Connection] | None = None
        self._closed_s = float("-inf")
        self._last_error = ""

    def run(self, stop: Event) -> None:
        """Watch until ``stop`` is set; the link stays as it is."""
        _log("info", "watching the shim", path=str(self._paths.listen), never=self._never_bypass)
        while not stop.is_set():
            began_s = self._clock()
            try:
                self.advance()
            except OSError as error:
                self._log_new_error("cannot watch the socket", str(error))
            stop.wait(max(_PERIOD_S - (self._clock() - began_s), 0.0))
        self._checks.stop()

    def advance(self) -> None:
        """Check once, and begin or end a bypass if that is due; raise OSError."""
        if self._link.is_placed and self._never_bypass:
            self._link.remove()
            _log("warning", "bypass link removed: no pod starts without the shim", path=str(self._paths.listen))
        if self._link.is_placed:
            self._rule.restart(self._clock())
            self._bypass_connections = None
            self._checks.advance()
            self._record(_FAILURE + self._check_failure())
            return
        self._checks.stop()
        shim = call_version(self._paths.listen, _ANSWER_S)
        runtime = call_version(self._paths.runtime, _ANSWER_S) if shim.outcome != "answers" else shim
        due = self._rule.is_due(
            shim_answers=shim.outcome == "answers",
            runtime_answers=runtime.outcome == "answers",
            now_s=self._clock(),
        )
        if due and not self._never_bypass:
            self._begin(shim)
        elif (shim.outcome == "answers" or self._never_bypass) and self._read_record() is not None:
            self._reconnect_kubelet()

    def _begin(self, shim: Probe) -> None:
        """Put the link in place, and kill an unresponsive shim, so that the kubelet reconnects."""
        self._link.place()
        _log("error", "shim bypassed", path=str(self._paths.listen), runtime=str(self._paths.runtime), reason=_FAILURE)
        if shim.outcome == "hangs" and shim.pid is not None:
            with suppress(ProcessLookupError):
                os.kill(shim.pid, signal.SIGKILL)
            _log("error", "unresponsive shim killed", pid=shim.pid)
        self._record(_FAILURE)

    def _reconnect_kubelet(self) -> None:
        """Close the connections that the kubelet made through the link, and remove the record when all are closed."""
        if self._bypass_connections is None or (
            open_among(self._bypass_connections) and self._clock() - self._closed_s >= _CLOSE_S
        ):
            self._closed_s = self._clock()
            try:
                self._bypass_connections = close_connections(self._paths.runtime)
            except OSError as error:
                self._record(
                    f"cannot close the kubelet's connections that bypass mooring-cri-shim ({error}): "
                    "systemctl restart kubelet"
                )
                self._log_new_error("cannot close the connections that bypass the shim", str(error))
                return
        if not open_among(self._bypass_connections):
            (self._paths.run / NAME).unlink(missing_ok=True)
            _log("info", "bypass ended", path=str(self._paths.listen), closed=len(self._bypass_connections))
            self._bypass_connections, self._last_error = None, ""

    def _check_failure(self) -> str:
        failure = self._checks.failure
        return f"; the check for missing devices of restarted containers fails: {failure}" if failure else ""

    def _read_record(self) -> ShimBypass | None:
        """Return the record; an unreadable record counts as a new one, and a foreign file as none."""
        try:
            text = read_record(self._paths.run / NAME)
            return None if text is None else read_shim_bypass(text)
        except ForeignFileError:
            return None
        except (RecordError, OSError):
            return ShimBypass(_now(), "")

    def _record(self, why: str) -> None:
        previous = self._read_record()
        record = ShimBypass(_now() if previous is None else previous.since, why)
        if previous == record:
            return
        try:
            write_shared(self._paths.run / NAME, dump_shim_bypass(record))
        except OSError as error:
            self._log_new_error("cannot write the record of the bypass", str(error))

    def _log_new_error(self, event: str, reason: str) -> None:
        if self._last_error != event + reason:
            self._last_error = event + reason
            _log("error", event, reason=reason)


def _log(level: str, event: str, **fields: object) -> None:
    """Log as the other programs do (`mooring.program.log`)."""
    line = {**fields, "event": event, "program": _PROGRAM, "level": level, "ts": datetime.now(UTC).isoformat()}
    print(json.dumps(line), file=sys.stderr, flush=True)


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
