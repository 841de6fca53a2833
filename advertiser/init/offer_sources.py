"""Where `init` has its offer from: the one that the cluster handed over, or a file that the operator wrote here."""

import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from advertiser.host.offer_file import parse_offer, read_offer_text
from advertiser.inventory.offer import EVERYTHING, Offer, OfferError
from mooring.errors import ContractError
from mooring.files import read_own_file, remove_file, sync_folder
from mooring.records import handed_offer


@dataclass(frozen=True, slots=True)
class TakenOffer:
    """What `init` is to prepare by: nothing yet where ``offer`` is None.

    ``text`` is what was taken last. Where that cannot be used, ``refusal`` is why, and the offer is the one before it.
    """

    text: str | None
    offer: Offer | None
    refusal: ContractError | OSError | None = None
    # The refused one is still where it was handed over.
    stays: bool = False


class OfferSource(Protocol):
    """An offer of which another one may come at any moment."""

    def take(self) -> TakenOffer:
        """Return the newest offer; raise OSError."""

    def has_newer(self, text: str | None) -> bool:
        """Return whether there is another text by now."""


@dataclass(frozen=True, slots=True)
class OperatorsOffer:
    """A file of this host; without it every PF is offered, unless it is ``required``."""

    path: Path
    required: bool = False

    def take(self) -> TakenOffer:
        text = self._text()
        try:
            return TakenOffer(text, EVERYTHING if text is None else parse_offer(text, str(self.path)))
        except OfferError as refusal:
            return TakenOffer(text, None, refusal)

    def has_newer(self, text: str | None) -> bool:
        try:
            return self._text() != text
        except OSError:
            return False

    def _text(self) -> str | None:
        return read_offer_text(self.path, required=self.required)


@dataclass(slots=True)
class HandedOffer:
    """The offer in the state folder, where only root may write: without one nothing was handed over yet.

    One that was handed over and cannot be used is removed, since mooring-init.path would start `init` for it again and
    again. What was taken before it stays. The refusal is the answer until another one is handed over.
    """

    state: Path
    _refused: TakenOffer | None = None

    def take(self) -> TakenOffer:
        """Return the newest offer, and make it the one of the next boot."""
        current, handed = self.state / handed_offer.CURRENT, self.state / handed_offer.NEXT
        text = None
        try:
            text = read_own_file(handed)
            if text is not None:
                offer = parse_offer(text, handed_offer.NEXT)
                handed.replace(current)
                sync_folder(current.parent)
                self._refused = None
                return TakenOffer(text, offer)
        except (OfferError, OSError) as refusal:
            self._refused = TakenOffer(text, None, refusal, stays=not _is_removed(handed))
        return self._last(current)

    def has_newer(self, text: str | None) -> bool:
        return (self.state / handed_offer.NEXT).exists()

    def _last(self, current: Path) -> TakenOffer:
        """Return the offer that was taken last, with the refusal of the newest one."""
        text, offer, refusal = None, None, None
        try:
            text = read_own_file(current)
            offer = None if text is None else parse_offer(text, handed_offer.CURRENT)
        except (OfferError, OSError) as unreadable:
            refusal = unreadable
        return TakenOffer(text, offer, refusal) if self._refused is None else replace(self._refused, offer=offer)


def _is_removed(handed: Path) -> bool:
    """Remove an offer, or what is in its place; return whether that is gone."""
    try:
        if handed.is_dir() and not handed.is_symlink():
            shutil.rmtree(handed)
        else:
            remove_file(handed)
    except OSError:
        return False
    return True
