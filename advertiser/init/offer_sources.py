"""The sources of `init`'s offer: the offer that the cluster handed over, or a file that the operator wrote here."""

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
    """The offer that `init` uses; ``offer`` is None if there is none yet.

    ``text`` is the newest offer. If it is invalid, ``refusal`` says why, and ``offer`` is the previous valid one.
    ``stays``: the invalid offer could not be removed.
    """

    text: str | None
    offer: Offer | None
    refusal: ContractError | OSError | None = None
    stays: bool = False


class OfferSource(Protocol):
    """A source of offers; a newer offer can arrive at any time."""

    def take(self) -> TakenOffer:
        """Return the newest offer; raise OSError."""

    def has_newer(self, text: str | None) -> bool:
        """Return whether the newest offer differs from ``text``."""


@dataclass(frozen=True, slots=True)
class OperatorsOffer:
    """A file of this host. Without the file every PF is on offer, unless the file is ``required``."""

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
    """The offer that the cluster handed over, in the state folder, where only root can write.

    `take` removes an invalid offer, because mooring-init.path would start `init` for it again and again. The previous
    offer stays in use, and the refusal is reported until the cluster hands over another offer.
    """

    state: Path
    _refused: TakenOffer | None = None

    def take(self) -> TakenOffer:
        """Return the newest offer and keep it for the next boot."""
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
    """Remove an offer, or whatever is in its place; return whether the path is free."""
    try:
        if handed.is_dir() and not handed.is_symlink():
            shutil.rmtree(handed)
        else:
            remove_file(handed)
    except OSError:
        return False
    return True
