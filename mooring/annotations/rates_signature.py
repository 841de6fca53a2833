"""The signature of changed rates: the annotation ``mooring.dev/rates-signature``, beside ``mooring.dev/rates``.

Its format and key are those of `mooring.annotations.assignment_signature`; it covers another prefix and the exact bytes
of the rates annotation. The rates name the pod's uid, its node and their generation, so the latest signed generation
counts.
"""

from mooring import names
from mooring.annotations.assignment_signature import AssignmentSignature
from mooring.annotations.assignment_signature import read_signature as _read

_PREFIX = b"mooring.dev/rates-signature v1\0"


def signed_bytes(rates: bytes) -> bytes:
    """Return the bytes to sign for rates with these annotation bytes."""
    return _PREFIX + rates


def read_signature(text: str) -> AssignmentSignature:
    """Read the annotation's value; raise AnnotationError."""
    return _read(text, names.RATES_SIGNATURE)
