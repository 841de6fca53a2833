"""Read the operator's offer from a YAML file of this host, again at every scan."""

from pathlib import Path
from typing import Any

import structlog
import yaml

from advertiser.inventory.offer import EVERYTHING, Offer, OfferError, read_offer
from mooring.bounded_yaml import NUMBERS, TEXT, YamlError, encode_json, only_document
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
        except (OfferError, OSError) as error:
            _log.error("offer cannot be read, using the last valid one", path=str(self._path), reason=str(error))
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
    document = only_document(text)
    if document is None:
        return None
    _keep_text(document.node)
    return document.value()


def _keep_text(root: Any) -> None:
    for entry in _items(_field(root, "pfs")):
        selectors = _field(entry, "match")
        texts = [value for _, value in selectors.value] if isinstance(selectors, yaml.MappingNode) else []
        for scalar in (*texts, _field(entry, "set_aside"), _field(_field(entry, "allow"), "vlan")):
            if isinstance(scalar, yaml.ScalarNode) and scalar.tag in NUMBERS:
                scalar.tag = TEXT


def _field(node: Any, name: str) -> Any:
    """Return the value of a mapping's field, None if the node is not a mapping or lacks the field."""
    fields = node.value if isinstance(node, yaml.MappingNode) else ()
    return next((value for key, value in fields if key.value == name), None)


def _items(node: Any) -> list[Any]:
    return node.value if isinstance(node, yaml.SequenceNode) else []


def parse_offer(text: str, name: str) -> Offer:
    """Read an offer in YAML, from the file ``name``; raise OfferError."""
    try:
        document = encode_json(_load(text))
    except YamlError as error:
        raise OfferError(name, "", f"not valid YAML: {error}") from error
    return read_offer(document, name)
