"""Read the values of an offer's ``match`` as operators write them, and return them as sysfs has them.

Accepted are ids with ``0x`` and in capitals, PCI addresses without a domain or in capitals, `ib` and `eth`, and the VFs
that follow a PF's name in the configuration of the SR-IOV network operator and device plugin (``ens1f0#0-3``). A value
without one meaning is an error that names the right form.
"""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import get_args

from mooring.indexes import LAST, Indexes
from mooring.names import LinkType
from mooring.nic.pci import NOT_AN_ADDRESS, is_address
from mooring.parsing import Value, shorten

# Globs by selector, in the order of the offer.
Match = tuple[tuple[str, str], ...]
_LONGEST = 128
_EXAMPLES = {
    "name": "ens1f0",
    "node": "gpu-*",
    "driver": "mlx5_core",
    "link": "ethernet",
    "pci": "0000:3b:00.0",
    "vendor": "15b3",
    "device": "101d",
}
SELECTORS = frozenset(_EXAMPLES)
_LINKS: Mapping[str, str] = {"ib": "infiniband", "eth": "ethernet"}
_HEX, _GLOB = frozenset("0123456789abcdef"), frozenset("*?[]!-")
_ALL_VFS = Indexes((1 << LAST + 1) - 1)


def read_match(value: Value) -> tuple[Match, Indexes]:
    """Return the globs, and the VFs that are set aside because ``name`` lists others; raise the value's error."""
    globs, set_aside = list[tuple[str, str]](), Indexes()
    for selector, selector_value in value.fields(SELECTORS).items():
        if selector == "name":
            glob, set_aside = _name(selector_value)
        else:
            glob = _read(selector, selector_value)
        globs.append((selector, glob))
    return tuple(globs), set_aside


def _read(selector: str, value: Value) -> str:
    text = _text(selector, value)
    if selector in ("vendor", "device"):
        return _id(selector, value, text)
    if selector == "pci":
        return _pci(value, text)
    return _link(value, text) if selector == "link" else text


def _text(selector: str, value: Value) -> str:
    if isinstance(value.raw, int | float):
        value.fail(f"{shorten(value.raw)} is a number: write it in quotes, such as {_EXAMPLES[selector]!r}")
    return value.string(longest=_LONGEST)


def _name(value: Value) -> tuple[str, Indexes]:
    """Return the glob of a name, and which VFs it leaves to the host: ``ens1f0#0-3`` is VFs 0 to 3 of ens1f0."""
    name, separator, ranges = _text("name", value).partition("#")
    if not separator:
        return name, Indexes()
    try:
        indexes = Indexes.parse(ranges)
    except ValueError as wrong:
        value.fail(f"{shorten(value.raw)}: {wrong}; write the VFs as in 'ens1f0#0-3,8'")
    if not name or not indexes:
        value.fail(f"{shorten(value.raw)} lacks the PF's name or its VFs: write them as in 'ens1f0#0-3,8'")
    return name, _ALL_VFS - indexes


def _id(selector: str, value: Value, text: str) -> str:
    text = text.lower().removeprefix("0x")
    if ":" in text:
        value.fail(f"{shorten(value.raw)}: write vendor and device apart, such as vendor: '15b3', device: '101d'")
    if _is_glob(text) and set(text) <= _HEX | _GLOB:
        return text
    if not text or len(text) > 4 or not set(text) <= _HEX:
        value.fail(f"{shorten(value.raw)} is not four hexadecimal digits such as {_EXAMPLES[selector]!r}")
    return text.zfill(4)


def _pci(value: Value, text: str) -> str:
    text = text.lower()
    first, colon, rest = text.partition(":")
    if colon and ":" not in rest and len(first) == 2 and set(first) <= _HEX:
        text = f"0000:{text}"
    if not is_address(text) and not (_is_glob(text) and set(text) <= _HEX | _GLOB | {":", "."}):
        value.fail(f"{shorten(value.raw)} {NOT_AN_ADDRESS}")
    return text


def _link(value: Value, text: str) -> str:
    text = _LINKS.get(text.lower(), text.lower())
    if not any(fnmatchcase(link, text) for link in get_args(LinkType)):
        value.fail(f"{shorten(value.raw)} is not one of {', '.join(get_args(LinkType))}")
    return text


def _is_glob(text: str) -> bool:
    return any(character in text for character in "*?[")
