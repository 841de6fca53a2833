"""The scheduler's signing key: an ed25519 private key in a PEM file, read once at the start."""

from pathlib import Path

import structlog

from mooring.assignment_signature import AssignmentSignature, dump_signature, key_id, signed_bytes
from mooring.config import ConfigError
from scheduler.cycle.decisions import SignAssignment

_log = structlog.get_logger()


def load_signing_key(file: str) -> SignAssignment | None:
    """Return what signs an assignment's text, None if no file is named; raise ConfigError."""
    if not file:
        return None
    # Imported here, because only a scheduler that signs pays for it.
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

    def sign(assignment: str) -> str:
        return dump_signature(AssignmentSignature(own_id, key.sign(signed_bytes(assignment.encode()))))

    return sign
