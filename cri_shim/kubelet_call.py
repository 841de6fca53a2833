"""Record when the kubelet last called the shim, for `mooring-node` (`mooring.records.kubelet_call`)."""

import asyncio
import time
from pathlib import Path

import grpc
import structlog

from cri_shim.proxy.proxy import Observe
from mooring.files import write_shared
from mooring.records.kubelet_call import NAME, STATUS, LastCall, dump_kubelet_call

_PAUSE_S = 4.0
_OWNER_MODE = 0o600
_log = structlog.get_logger()


class KubeletCall:
    """Writes the record below ``run`` when a call of the kubelet ends."""

    def __init__(self, run: Path) -> None:
        self._path = run / NAME
        self._written_s = float("-inf")

    def call_recorder(self, observe: Observe) -> Observe:
        """Create the record if it is missing; return a function that records each ended call and calls ``observe``."""
        if not self._path.exists():
            self._write(LastCall(time.monotonic(), waiting=True))

        def note(method: str, code: grpc.StatusCode, total_s: float, waited_s: float) -> None:
            observe(method, code, total_s, waited_s)
            now_s = time.monotonic()
            if method == STATUS and now_s - self._written_s >= _PAUSE_S:
                self._written_s = now_s
                # Not in the event loop, because a write to /run may be slow.
                asyncio.get_running_loop().run_in_executor(None, self._write, LastCall(now_s))

        return note

    def _write(self, call: LastCall) -> None:
        try:
            write_shared(self._path, dump_kubelet_call(call), _OWNER_MODE)
        except OSError as error:
            _log.warning("cannot record the kubelet's last call", reason=str(error))
