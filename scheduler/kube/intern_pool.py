"""Interning: equal values become one instance as long as it is in use, so thousands of equal pods share it.

A cache of recent values would keep what is deleted, and users could choose its size.
"""

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary, ref

T = TypeVar("T", bound=Hashable)


class InternPool(Generic[T]):
    """The interned instances; their type allows weak references, and caches its hash."""

    def __init__(self) -> None:
        self._known: WeakKeyDictionary[T, ref[T]] = WeakKeyDictionary()

    def __len__(self) -> int:
        return len(self._known)

    def of(self, value: T, ready: Callable[[T], T] = lambda value: value) -> T:
        """Return the equal instance if there is one; otherwise this one, as ``ready`` prepares it."""
        reference = self._known.get(value)
        kept_value = reference() if reference is not None else None
        if kept_value is None:
            kept_value = ready(value)
            self._known[kept_value] = ref(kept_value)
        return kept_value
