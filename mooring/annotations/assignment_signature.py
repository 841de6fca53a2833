"""The signature of an assignment: the annotation ``mooring.dev/assignment-signature``, beside it in the Binding.

    {"ed25519":"<signature, base64>","key":"<key id>","v":1}

The signature covers a prefix, which no other use of the key has, and the exact bytes of the assignment annotation. The
assignment names the pod's uid and its node, so the signature is worthless for another pod or node. The key id is the
beginning of the SHA-256 of the public key's 32 bytes: it selects the key to try, and proves nothing.

The scheduler signs, and the CRI shim verifies; this module has the format that both use. Source: RFC 8032.
"""

import hashlib
import re
from base64 import b64decode, b64encode
from dataclasses import dataclass

from mooring import names
from mooring.errors import AnnotationError
from mooring.parsing import Value, dump, parse

_PREFIX = b"mooring.dev/assignment-signature v1\0"
_KEY_ID = re.compile(r"[0-9a-f]{16}", re.ASCII)
# 64 bytes.
_BASE64 = re.compile(r"[A-Za-z0-9+/]{86}==", re.ASCII)
# Twice the length of a signature; longer values are rejected.
_MOST_CHARACTERS = 256


@dataclass(frozen=True, slots=True)
class AssignmentSignature:
    """A signature of 64 bytes, and the id of the key that made it."""

    key: str
    value: bytes


def signed_bytes(assignment: bytes) -> bytes:
    """Return the bytes to sign for an assignment with these annotation bytes."""
    return _PREFIX + assignment


def key_id(public_key: bytes) -> str:
    """Return the id of a public key of 32 bytes."""
    return hashlib.sha256(public_key).hexdigest()[:16]


def read_signature(text: str, key: str = names.SIGNATURE) -> AssignmentSignature:
    """Read the value of the annotation ``key``; raise AnnotationError."""
    if len(text) > _MOST_CHARACTERS:
        raise AnnotationError(key, "", f"longer than {_MOST_CHARACTERS} characters")
    document = parse(text, key, AnnotationError).version(1).fields({"v", "key", "ed25519"})
    return AssignmentSignature(
        key=document.required("key").match(_KEY_ID, "a key id (16 of 0-9 a-f)"),
        value=_value(document.required("ed25519")),
    )


def dump_signature(signature: AssignmentSignature) -> str:
    return dump({"v": 1, "key": signature.key, "ed25519": b64encode(signature.value).decode()})


def _value(value: Value) -> bytes:
    return b64decode(value.match(_BASE64, "a signature (64 bytes in base64)"))
