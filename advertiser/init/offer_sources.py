"""Where `init` has its offer from: the one that the cluster handed over, or a file that the operator wrote here."""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from advertiser.host.offer_file import parse_offer, read_offer_text
from advertiser.inventory.offer import EVERYTHING, Offer, OfferError
from mooring.files import read_own_file, remove_file, sync_folder
from mooring.records import handed_offer


class OfferSource(Protocol):
    """An offer of which another one may come at any moment."""

    def take(self) -> str | None:
        """Return the newest text, None without one; raise OSError."""

    def has_newer(self, text: str | None) -> bool:
        """Return whether there is another text by now."""

    def read(self, text: str | None) -> Offer | None:
        """Return the offer, None where there is none yet; raise OfferError."""


@dataclass(frozen=True, slots=True)
class OperatorsOffer:
    """A file of this host; without it every PF is offered, unless it is ``required``."""

    path: Path
    required: bool = False

    def take(self) -> str | None:
        return read_offer_text(self.path, required=self.required)

    def has_newer(self, text: str | None) -> bool:
        try:
            return self.take() != text
        except OSError:
            return False

    def read(self, text: str | None) -> Offer | None:
        return EVERYTHING if text is None else parse_offer(text, str(self.path))


@dataclass(frozen=True, slots=True)
class HandedOffer:
    """The offer in the state folder, where only root may write: without one nothing was handed over yet."""

    state: Path

    def take(self) -> str | None:
        """Return the newest text, and make it the one of the next boot if it can be read."""
        current, handed = self.state / handed_offer.CURRENT, self.state / handed_offer.NEXT
        try:
            text = read_own_file(handed)
        except OSError:
            # mooring-init.path would start `init` again and again.
            remove_file(handed)
            raise
        if text is None:
            return read_own_file(current)
        if self._is_readable(text):
            handed.replace(current)
            sync_folder(current.parent)
        else:
            remove_file(handed)
        return text

    def has_newer(self, text: str | None) -> bool:
        return (self.state / handed_offer.NEXT).exists()

    def read(self, text: str | None) -> Offer | None:
        return None if text is None else parse_offer(text, handed_offer.CURRENT)

    def _is_readable(self, text: str) -> bool:
        try:
            self.read(text)
        except OfferError:
            return False
        return True
