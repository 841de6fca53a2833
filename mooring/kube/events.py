"""The events of a watch, as plain values, which pure code handles independently of their source.

They are Structs because one is created for every change, and creating a frozen dataclass takes several times as long.
"""

from typing import Generic, TypeVar

import msgspec

T = TypeVar("T")


class Identity(msgspec.Struct, frozen=True, rename="camel"):
    """An object's identity and version; absent fields are empty."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


class Changed(msgspec.Struct, Generic[T], frozen=True):
    """The object is new or has changed."""

    identity: Identity
    item: T


class Unreadable(msgspec.Struct, frozen=True):
    """The object exists but cannot be decoded; ``why`` names the field."""

    identity: Identity
    why: str


class Removed(msgspec.Struct, frozen=True):
    """The object is deleted, or no longer selected."""

    identity: Identity


class Synced(msgspec.Struct, Generic[T], frozen=True):
    """All objects that exist now; the listener already has the current version of those in ``unchanged``."""

    entries: tuple[Changed[T] | Unreadable, ...]
    unchanged: tuple[Identity, ...] = ()

    @property
    def identities(self) -> list[Identity]:
        return [*self.unchanged, *(entry.identity for entry in self.entries)]


Change = Changed[T] | Removed | Unreadable
Event = Synced[T] | Change[T]
