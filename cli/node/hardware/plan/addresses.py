"""MACs and GUIDs of the test, made from the PF's own identity: two tests on one network never use the same ones."""

import hashlib
from dataclasses import dataclass

_LOCALLY_ADMINISTERED = "02"
_MAC_BYTES, _GUID_BYTES = 6, 8


@dataclass(frozen=True, slots=True)
class PfAddresses:
    """Addresses by what they are for; ``identity`` is the PF's permanent address, or its node GUID."""

    identity: str

    def mac(self, purpose: str) -> str:
        """Return a MAC that is locally administered."""
        return self._address(purpose, _MAC_BYTES)

    def guid(self, purpose: str) -> str:
        return self._address(purpose, _GUID_BYTES)

    def _address(self, purpose: str, length: int) -> str:
        digest = hashlib.sha256(f"{self.identity} {purpose}".encode()).digest()
        return f"{_LOCALLY_ADMINISTERED}:{digest[: length - 1].hex(':')}"
