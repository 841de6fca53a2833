"""Verify the signatures of assignments and rates with the public keys of this node's schedulers.

The key file contains ed25519 public keys in PEM format; two while keys are changed. Without the file every assignment
and every change of a running pod's rates is accepted. The file is read again whenever it changes. While it is invalid,
every assignment is rejected. So it is if the file disappears while the program runs, because an editor may move it
aside for a moment. Callers verify before they parse the assignment.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from mooring import names
from mooring.annotations import rates_signature
from mooring.annotations.assignment_signature import key_id, read_signature, signed_bytes
from mooring.errors import AnnotationError
from mooring.files import read_own_file

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

_log = structlog.get_logger()
_BLOCK = re.compile(r"-----BEGIN ([A-Z ]{1,32})-----[^-]{1,4096}-----END \1-----")
_MOST_KEYS = 16
Stamp = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class SignatureKind:
    """A kind of signed document: the annotation of its signature, the error for a wrong one, and the signed bytes."""

    signature: str
    error: str
    signed_bytes: Callable[[bytes], bytes]


ASSIGNMENT = SignatureKind(names.SIGNATURE, "not the key's signature of this assignment", signed_bytes)
# Signed like an assignment but with another prefix, so that neither signature is valid for the other document.
RATES = SignatureKind(names.RATES_SIGNATURE, "not the key's signature of these rates", rates_signature.signed_bytes)


class KeysError(ValueError):
    """The key file is invalid."""


class AssignmentKeys:
    """The keys in the file at ``path``, by key id."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp: Stamp | None = None
        self._keys: Mapping[str, Ed25519PublicKey] | None = None
        self._fault = ""
        self.look()

    def look(self) -> str:
        """Read the file again if it has changed; return why it is invalid, empty if it is valid or absent."""
        try:
            stamp = self._file_stamp()
            if stamp != self._stamp or self._fault:
                self._keys, self._stamp = self._read(), stamp
                self._log_keys(sorted(self._keys) if self._keys is not None else None)
        except (OSError, ValueError) as error:
            self._set_fault(f"the keys in {str(self._path)!r} cannot be used: {error}")
        return self._fault

    @property
    def ids(self) -> tuple[str, ...] | None:
        """The ids of the keys; None without a file."""
        return None if self._keys is None else tuple(sorted(self._keys))

    def refusal(self, text: bytes, signature: bytes | None, kind: SignatureKind = ASSIGNMENT) -> str:
        """Return why an assignment or rates are rejected, empty if they are accepted.

        ``text`` and ``signature`` are the bytes of the two annotations, ``signature`` None without one.
        """
        if fault := self.look():
            return fault
        return "" if self._keys is None else _signature_refusal(self._keys, text, signature, kind)

    def _file_stamp(self) -> Stamp | None:
        try:
            status = self._path.stat()
        except FileNotFoundError:
            return None
        return status.st_ino, status.st_ctime_ns, status.st_size

    def _read(self) -> "Mapping[str, Ed25519PublicKey] | None":
        text = read_own_file(self._path)
        if text is None and self._keys is not None:
            raise KeysError(
                "the file was removed; without it this node accepts unsigned assignments once mooring-cri-shim restarts"
            )
        return None if text is None else _public_keys(text)

    def _log_keys(self, ids: list[str] | None) -> None:
        self._fault = ""
        if ids is None:
            _log.info("this node accepts unsigned assignments", file=str(self._path))
        else:
            _log.info("this node accepts only signed assignments", file=str(self._path), keys=ids)

    def _set_fault(self, fault: str) -> None:
        if fault != self._fault:
            _log.error("assignment keys cannot be used", reason=fault)
        self._fault = fault


def _signature_refusal(
    keys: "Mapping[str, Ed25519PublicKey]", text: bytes, signature: bytes | None, kind: SignatureKind
) -> str:
    if signature is None:
        return f"annotation {kind.signature!r} is missing, and this node accepts only signed assignments"
    try:
        parsed_signature = read_signature(signature.decode(errors="replace"))
    except AnnotationError as error:
        return str(AnnotationError(kind.signature, error.path, error.rule))
    key = keys.get(parsed_signature.key)
    if key is None:
        key_ids = ", ".join(keys) or "none"
        return f"annotation {kind.signature!r}: key {parsed_signature.key!r} is not one of this node's ({key_ids})"
    if _verifies(key, parsed_signature.value, kind.signed_bytes(text)):
        return ""
    return f"annotation {kind.signature!r}: {kind.error}"


def _public_keys(text: str) -> "dict[str, Ed25519PublicKey]":
    # Imported here, because only nodes with keys need it.
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    blocks = list(_BLOCK.finditer(text))
    if not blocks or len(blocks) > _MOST_KEYS or text.count("-----BEGIN") != len(blocks):
        raise KeysError(f"the file has {len(blocks)} complete PEM blocks; it must have 1 to {_MOST_KEYS}, all complete")
    keys = {}
    for block in blocks:
        try:
            key = load_pem_public_key(block[0].encode())
        except UnsupportedAlgorithm as error:
            raise KeysError(str(error)) from error
        if not isinstance(key, Ed25519PublicKey):
            raise KeysError(f"{block[1]!r} is not an ed25519 public key")
        keys[key_id(key.public_bytes_raw())] = key
    return keys


def _verifies(key: "Ed25519PublicKey", signature: bytes, message: bytes) -> bool:
    from cryptography.exceptions import InvalidSignature

    try:
        key.verify(signature, message)
    except InvalidSignature:
        return False
    return True
