"""Read the operator's offer from a YAML file of this host, again at every scan."""

import json
from pathlib import Path
from typing import Any

import structlog
import yaml

from advertiser.inventory.offer import EVERYTHING, Offer, OfferError, read_offer
from mooring.files import read_file

_NUMBERS = frozenset({"tag:yaml.org,2002:int", "tag:yaml.org,2002:float"})
_TEXT = "tag:yaml.org,2002:str"
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


def _load(text: str) -> Any:
    """Load YAML with the values of `match`, `set_aside` and `allow.vlan` as they are written.

    Without quotes YAML 1.1 has numbers in them: 0x15b3 in hexadecimal, 18:00.0 and 0000:04:00.0 in base 60.
    """
    loader = yaml.SafeLoader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        for entry in _items(_field(node, "pfs")):
            selectors = _field(entry, "match")
            texts = [value for _, value in selectors.value] if isinstance(selectors, yaml.MappingNode) else []
            for scalar in (*texts, _field(entry, "set_aside"), _field(_field(entry, "allow"), "vlan")):
                if isinstance(scalar, yaml.ScalarNode) and scalar.tag in _NUMBERS:
                    scalar.tag = _TEXT
        return loader.construct_document(node)
    finally:
        loader.dispose()


def _field(node: Any, name: str) -> Any:
    """Return the value of a mapping's field, None if the node is not a mapping or lacks the field."""
    fields = node.value if isinstance(node, yaml.MappingNode) else ()
    return next((value for key, value in fields if key.value == name), None)


def _items(node: Any) -> list[Any]:
    return node.value if isinstance(node, yaml.SequenceNode) else []


def parse_offer(text: str, name: str) -> Offer:
    """Read an offer in YAML, from the file ``name``; raise OfferError."""
    try:
        # YAML has dates, JSON has not: such values become text, which the rules then reject.
        document = json.dumps(_load(text), default=str)
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as broken:
        raise OfferError(name, "", f"not valid YAML: {broken}") from broken
    return read_offer(document, name)
