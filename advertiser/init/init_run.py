"""Run `init` until nothing is left to do: take the offer and the bind requests, prepare the PFs, write the result.

systemd starts `init` at boot, after a PF's driver was bound, and after an offer was handed over. The latter two can
happen again while `init` runs, and systemd does not start a running unit again. So a run takes all requests before it
reads the host, and repeats until there are no new ones. After a driver reload it tries three times: udev, other modules
of the driver and the firmware can need some seconds more.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import structlog

from advertiser.init.bind_requests import BindRequests
from advertiser.init.offer_sources import OfferSource, TakenOffer
from advertiser.inventory.offer import Offer
from mooring.errors import ContractError
from mooring.files import make_folder, write_shared
from mooring.locks import share
from mooring.records import handed_offer
from mooring.records.handed_offer import InitResult, dump_init_result

# The other PFs of a NIC are bound within the same second, and udev renames their netdevs.
_SETTLE_S = 1.0
# Before the second and the third try.
PAUSES_S = (5.0, 20.0)
_POLL_S = 0.2
_log = structlog.get_logger()
# Prepares the PFs; returns the failures.
Prepare = Callable[[Offer], Sequence[object]]


@dataclass(frozen=True, slots=True)
class _Attempt:
    """The outcome of one try.

    ``text`` is the newest offer, None without one. ``refusal`` is why it is invalid, ``failures`` are the PFs that
    could not be prepared. ``stays``: the invalid offer could not be removed.
    """

    text: str | None
    refusal: object | None
    failures: Sequence[object]
    stays: bool = False

    @property
    def result(self) -> InitResult:
        return handed_offer.final_result(self.text, (*([] if self.refusal is None else [self.refusal]), *self.failures))


@dataclass(frozen=True, slots=True)
class InitRun:
    """A run of `init`; ``pause`` sleeps for the given number of seconds."""

    source: OfferSource
    requests: BindRequests
    prepare: Prepare
    pause: Callable[[float], None]

    def run(self) -> bool:
        """Prepare the host until there are no new requests; return whether every PF is prepared."""
        with self._shown_as_running():
            result = handed_offer.final_result(None, ["init ended unexpectedly: see its log"])
            try:
                result = self._run()
            finally:
                self._report(result)
            return not result.failures

    def _run(self) -> InitResult:
        pauses: Iterator[float] = iter(())
        is_stuck = False
        while True:
            if bound := self.requests.take():
                self.pause(_SETTLE_S)
                bound += self.requests.take()
                _log.info("drivers of PFs were bound", pci=", ".join(sorted({*bound})))
                pauses = iter(PAUSES_S)
            self._report(InitResult("running"))
            attempt = self._try()
            if attempt.stays and not is_stuck:
                # An offer that cannot be removed would make mooring-init.path start this unit at once, again and again.
                pauses, is_stuck = iter(PAUSES_S), True
            if self._is_asked_again(attempt):
                continue
            if not (attempt.failures or attempt.stays) or (pause_s := next(pauses, None)) is None:
                return attempt.result
            _log.warning("init retries", after_s=pause_s, reason=attempt.result.failures[0])
            self._wait(pause_s, attempt)

    def _try(self) -> _Attempt:
        taken = TakenOffer(None, None)
        failures: Sequence[object] = ()
        try:
            taken = self.source.take()
            if taken.refusal is not None:
                _log.error("offer rejected", reason=str(taken.refusal))
            elif taken.offer is None:
                _log.info("this node has not received an offer yet")
            if taken.offer is not None:
                failures = self.prepare(taken.offer)
        except (ContractError, OSError) as error:
            _log.error("init failed", reason=str(error))
            failures = (error,)
        return _Attempt(taken.text, taken.refusal, failures, taken.stays)

    def _is_asked_again(self, attempt: _Attempt) -> bool:
        return self.requests.pending() or (not attempt.stays and self.source.has_newer(attempt.text))

    def _wait(self, pause_s: float, attempt: _Attempt) -> None:
        for _ in range(round(pause_s / _POLL_S)):
            if self._is_asked_again(attempt):
                return
            self.pause(_POLL_S)

    @contextmanager
    def _shown_as_running(self) -> Iterator[None]:
        """Hold the run's lock: a result ``running`` without a held lock belongs to a run that was killed."""
        path = self.requests.run / handed_offer.LOCK
        with ExitStack() as stack:
            try:
                make_folder(path.parent, 0o755)
                stack.enter_context(share(path))
            except OSError as error:
                _log.error("init cannot record that it runs", reason=str(error))
            yield

    def _report(self, result: InitResult) -> None:
        """Write the result. A failure is only logged: readers have a time limit, and the VFs exist anyway."""
        path = self.requests.run / handed_offer.RESULT
        try:
            make_folder(path.parent, 0o755)
            write_shared(path, dump_init_result(result), mode=0o644)
        except OSError as error:
            _log.error("init cannot write its result", reason=str(error))
