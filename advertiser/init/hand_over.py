"""Hand the cluster's offer to this node and wait until `init` on the host has used it; runs in an init container.

Writes one file. An invalid offer is not handed over. If no `init` has run since boot, mooring-init.service is not
installed, and there is nothing to wait for: the unit takes the offer when `mooring-node install` starts it.
"""

import time
from collections.abc import Callable
from pathlib import Path

import structlog

from advertiser.host.offer_file import parse_offer, read_offer_text
from mooring.errors import RecordError
from mooring.files import read_file, write_file
from mooring.locks import is_shared
from mooring.records import handed_offer
from mooring.records.handed_offer import InitResult, read_init_result

# The offer of a cluster without one; equals `advertiser.inventory.offer.EVERYTHING`.
NO_OFFER = "# The cluster has no offer: every PF is offered.\nv: 1\npfs:\n- {}\n"
# TimeoutStartSec of mooring-init.service.
_LIMIT_S = 900.0
_SAID_EVERY_S = 30.0
_POLL_S = 0.5
_log = structlog.get_logger()


class NotPreparedError(RuntimeError):
    """`init` could not prepare the node for an offer; the message has its failures."""


def hand_over(state: Path, offer: Path, *, required: bool) -> str:
    """Write the offer durably into the state folder and return its text; raise OfferError or OSError."""
    text = read_offer_text(offer, required=required)
    if text is None:
        text = NO_OFFER
    parse_offer(text, str(offer))
    write_file(state / handed_offer.NEXT, text)
    _log.info("offer handed over", path=str(state / handed_offer.NEXT))
    return text


def await_init(state: Path, run: Path, text: str, pause: Callable[[float], None] = time.sleep) -> None:
    """Wait until `init` has prepared the node for the offer; raise NotPreparedError or OSError.

    ``text`` is the offer that `hand_over` returned.
    """
    waited_s = 0.0
    while True:
        result = _read_result(run)
        if result is None:
            _log.warning("no program on this node takes the offer: run mooring-node install")
            return
        if not (state / handed_offer.NEXT).exists():
            # Read again: a run records that it is running before it takes the offer.
            result = _read_result(run)
            if result is not None and result.state == "done":
                _check(result, text)
                return
            if _was_killed(run):
                raise NotPreparedError("mooring-init.service was stopped or killed: see its log on the node")
        if waited_s >= _LIMIT_S:
            raise NotPreparedError(
                f"mooring-init.service has not finished with the offer after {_LIMIT_S:.0f} s: see its log on the node"
            )
        if waited_s % _SAID_EVERY_S == 0:
            _log.info("waiting for mooring-init.service", state=result.state if result else None)
        pause(_POLL_S)
        waited_s += _POLL_S


def _check(result: InitResult, text: str) -> None:
    if result.failures:
        raise NotPreparedError(f"mooring-init.service: {'; '.join(result.failures)}")
    if result.offer != handed_offer.digest(text):
        raise NotPreparedError("mooring-init.service has received another offer")
    _log.info("mooring-init.service has prepared this node")


def _was_killed(run: Path) -> bool:
    """Return whether no `init` runs although its result says so; False for an earlier release, which has no lock."""
    try:
        return not is_shared(run / handed_offer.LOCK) and _read(run) == InitResult("running")
    except (RecordError, OSError):
        return False


def _read_result(run: Path) -> InitResult | None:
    try:
        return _read(run)
    except RecordError:
        # A result of another version: the next run replaces it.
        return InitResult("running")


def _read(run: Path) -> InitResult | None:
    text = read_file(run / handed_offer.RESULT)
    return None if text is None else read_init_result(text)
