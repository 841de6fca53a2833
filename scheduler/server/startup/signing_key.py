"""The scheduler's signing key: an ed25519 private key in a PEM file, read once at the start."""

from pathlib import Path
from typing import Protocol

import structlog

from mooring.annotations import rates_signature
from mooring.annotations.assignment_signature import AssignmentSignature, dump_signature, key_id, signed_bytes
from mooring.program.config import ConfigError

_log = structlog.get_logger()


class _PrivateKey(Protocol):
    def sign(self, data: bytes, /) -> bytes: ...


class SigningKey:
    """Signs an assignment's text when called, and the text of rates."""

    def __init__(self, key: _PrivateKey, own_id: str) -> None:
        self._key, self._id = key, own_id

    def __call__(self, assignment: str) -> str:
        return self._dump(signed_bytes(assignment.encode()))

    def rates(self, rates: str) -> str:
        return self._dump(rates_signature.signed_bytes(rates.encode()))

    def _dump(self, message: bytes) -> str:
        return dump_signature(AssignmentSignature(self._id, self._key.sign(message)))


def load_signing_key(file: str) -> SigningKey | None:
    """Return the signer, None if no file is named; raise ConfigError."""
    if not file:
        return None
    # Imported here, because only a scheduler that signs needs it.
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        key = load_pem_private_key(Path(file).read_bytes(), password=None)
    except (OSError, ValueError, TypeError) as unusable:
        # TypeError: the key has a password.
        raise ConfigError(f"signing key {file!r} cannot be read: {unusable}") from unusable
    if not isinstance(key, Ed25519PrivateKey):
        raise ConfigError(f"signing key {file!r} is not an ed25519 key")
    own_id = key_id(key.public_key().public_bytes_raw())
    _log.info("assignments are signed", key=own_id)
    return SigningKey(key, own_id)
