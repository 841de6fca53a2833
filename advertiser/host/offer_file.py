"""Read the operator's offer from a YAML file of this host, again at every scan."""

import json
from pathlib import Path

import structlog
import yaml

from advertiser.inventory.offer import EVERYTHING, Offer, OfferError, read_offer
from mooring.files import read_file

_log = structlog.get_logger()


class OfferFile:
    """The operator's offer, read again at every call; while the file is invalid, the last valid offer is used."""

    def __init__(self, path: Path, *, required: bool) -> None:
        """Read the file; raise OfferError or OSError if it cannot be used, FileNotFoundError only if required."""
        self._path = path
        self._required = required
        self._text: str | None = None
        self._offer = self._read()

    def offer(self) -> Offer:
        """Return the current offer."""
        try:
            self._offer = self._read()
        except (OfferError, OSError) as broken:
            _log.error("offer cannot be read, using the last valid one", path=str(self._path), reason=str(broken))
        return self._offer

    def _read(self) -> Offer:
        text = read_offer_text(self._path, required=self._required)
        return EVERYTHING if text is None else parse_offer(text, str(self._path))


def read_offer_text(path: Path, *, required: bool) -> str | None:
    """Return the file's text, None without one; raise OSError, FileNotFoundError only if required."""
    text = read_file(path)
    if text is None and required:
        raise FileNotFoundError(f"offer {str(path)!r} does not exist")
    return text


def parse_offer(text: str, name: str) -> Offer:
    """Read an offer in YAML, from the file ``name``; raise OfferError."""
    try:
        # YAML has dates, JSON has not: such values become text, which the rules then reject.
        document = json.dumps(yaml.safe_load(text), default=str)
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as broken:
        raise OfferError(name, "", f"not valid YAML: {broken}") from broken
    return read_offer(document, name)
