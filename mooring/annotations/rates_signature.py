"""Who wrote the rates of a running pod: the annotation ``mooring.dev/rates-signature``, beside ``mooring.dev/rates``.

It is as `mooring.annotations.assignment_signature`'s, by the same key, over the exact bytes of the rates' annotation
with a prefix of its own. The rates name the pod's uid, its node and their generation: of two that are signed the later
one counts.
"""

from mooring import names
from mooring.annotations.assignment_signature import AssignmentSignature
from mooring.annotations.assignment_signature import read_signature as _read

_PREFIX = b"mooring.dev/rates-signature v1\0"


def signed_bytes(rates: bytes) -> bytes:
    """Return what is signed for rates, given their annotation's bytes."""
    return _PREFIX + rates


def read_signature(text: str) -> AssignmentSignature:
    """Read the annotation's value; raise AnnotationError."""
    return _read(text, names.RATES_SIGNATURE)
