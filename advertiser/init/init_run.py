"""One run of `init` from its start to its result: take what is asked for, prepare the PFs, try again after a reload.

Started at boot, by a PF's driver that was bound, and by an offer that was handed over. All of these may come again
while it runs, and systemd starts no unit twice. So each is taken before the host is looked at, and the run goes on
until nothing new has come. A reload of a driver has three tries: udev, the driver's other modules and the firmware may
need some seconds more.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import structlog

from advertiser.init.bind_requests import BindRequests
from advertiser.init.offer_sources import OfferSource
from advertiser.inventory.offer import Offer
from mooring.errors import ContractError
from mooring.files import make_folder, write_shared
from mooring.records import handed_offer
from mooring.records.handed_offer import InitResult, dump_init_result

# The other PFs of a NIC are bound within the same second, and udev renames their netdevs.
_SETTLE_S = 1.0
# Before the second and the third try.
PAUSES_S = (5.0, 20.0)
_POLL_S = 0.2
_log = structlog.get_logger()
# Prepares the PFs; returns what failed.
Prepare = Callable[[Offer], Sequence[object]]


@dataclass(frozen=True, slots=True)
class _Attempt:
    """The offer's text, and what failed; ``taken`` is False if the text could not be taken."""

    text: str | None
    failures: Sequence[object] = ()
    taken: bool = True


@dataclass(frozen=True, slots=True)
class InitRun:
    """A run of `init`; ``pause`` sleeps for some seconds."""

    source: OfferSource
    requests: BindRequests
    prepare: Prepare
    pause: Callable[[float], None]

    def run(self) -> bool:
        """Prepare the host until nothing new is asked for; return whether everything is prepared."""
        pauses: Iterator[float] = iter(())
        is_stuck = False
        result = handed_offer.done(None, ["init ended unexpectedly: its log has why"])
        try:
            while True:
                if bound := self.requests.take():
                    self.pause(_SETTLE_S)
                    bound += self.requests.take()
                    _log.info("drivers of PFs were bound", pci=", ".join(sorted({*bound})))
                    pauses = iter(PAUSES_S)
                self._report(InitResult("running"))
                attempt = self._try()
                result = handed_offer.done(attempt.text, attempt.failures)
                if not attempt.taken and self.source.has_newer(None) and not is_stuck:
                    # mooring-init.path would start this unit again at once, until systemd gives up.
                    pauses, is_stuck = iter(PAUSES_S), True
                if self._is_asked_again(attempt):
                    continue
                if not attempt.failures or (pause_s := next(pauses, None)) is None:
                    return not attempt.failures
                _log.warning("init tries again", after_s=pause_s, reason=str(attempt.failures[0]))
                self._wait(pause_s, attempt)
        finally:
            self._report(result)

    def _try(self) -> _Attempt:
        text, taken = None, False
        try:
            text, taken = self.source.take(), True
            offer = self.source.read(text)
            if offer is None:
                _log.info("no offer was handed to this node yet")
                return _Attempt(text)
            return _Attempt(text, self.prepare(offer))
        except (ContractError, OSError) as failed:
            _log.error("init fails", reason=str(failed))
            return _Attempt(text, (failed,), taken)

    def _is_asked_again(self, attempt: _Attempt) -> bool:
        return self.requests.pending() or (attempt.taken and self.source.has_newer(attempt.text))

    def _wait(self, pause_s: float, attempt: _Attempt) -> None:
        for _ in range(round(pause_s / _POLL_S)):
            if self._is_asked_again(attempt):
                return
            self.pause(_POLL_S)

    def _report(self, result: InitResult) -> None:
        path = self.requests.run / handed_offer.RESULT
        make_folder(path.parent, 0o755)
        write_shared(path, dump_init_result(result), mode=0o644)
