"""Parse Kubernetes quantities (``1500m``, ``2Gi``, ``1e3``) into integers.

Source: apimachinery pkg/api/resource/quantity.go. Values are rounded up, as there, and limited to 64 bits. Amounts of a
resource have a lower limit, so that the sum over all pods of a node fits into 64 bits.
"""

import re
from collections.abc import Mapping
from functools import lru_cache

from mooring.parsing import shorten
from scheduler.kube.objects import Quantity

_NUMBER = re.compile(
    r"([+-]?)([0-9]{1,40}(?:\.[0-9]{0,40})?|\.[0-9]{1,40})([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{1,2})?", re.A
)
_LARGEST = 2**63 - 1
# 8 PiB, or this many units: more than a node has.
MOST = 2**53
_DECIMAL: Mapping[str, int] = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY: Mapping[str, int] = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}


@lru_cache(maxsize=8192)
def parse_quantity(quantity: Quantity, parts: int = 1) -> int:
    """Return a quantity in units of 1/``parts`` (1000 for cpu), rounded up; raise ValueError."""
    match = _NUMBER.fullmatch(str(quantity))
    if match is None:
        raise ValueError(f"{shorten(quantity)} is not a quantity such as '500m' or '2Gi'")
    sign, digits, suffix = match[1], match[2], match[3] or ""
    integer_digits, _, fraction = digits.partition(".")
    units, power = _scale(suffix)
    amount, power = int(integer_digits + fraction) * units * parts, power - len(fraction)
    result: int = min(amount * 10**power if power >= 0 else -(-amount // 10**-power), _LARGEST)
    return -result if sign == "-" else result


def _scale(suffix: str) -> tuple[int, int]:
    """Return the meaning of a suffix: a factor, and a power of ten."""
    if suffix in _BINARY:
        return 1 << _BINARY[suffix], 0
    return 1, _DECIMAL[suffix] if suffix in _DECIMAL else int(suffix[1:])


def parse_resources(quantities: Mapping[str, Quantity] | None) -> dict[str, int]:
    """Return amounts by resource, cpu in thousandths, everything else in units, at most `MOST`.

    Raise ValueError naming the resource, also for a negative amount.
    """
    amounts = {}
    for name, quantity in (quantities or {}).items():
        try:
            amount = parse_quantity(quantity, 1000 if name == "cpu" else 1)
        except ValueError as unreadable:
            raise ValueError(f"resource {shorten(name)}: {unreadable}") from None
        if amount < 0:
            raise ValueError(f"resource {shorten(name)}: {shorten(quantity)} is below 0")
        amounts[name] = min(amount, MOST)
    return amounts
