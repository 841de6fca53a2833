"""Cache results of pure functions by their arguments. This saves time and changes no outcome."""

from collections.abc import Callable, Hashable
from functools import lru_cache
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


def interner(max_count: int) -> Callable[[Key], Key]:
    """Return a function that returns one instance of equal values, so that results can be looked up by identity."""
    return lru_cache(max_count)(lambda value: value)


class Memo(Generic[Key, Value]):
    """The latest values by key; beyond ``max_count`` the oldest is dropped.

    A key may be the identity of arguments that take long to hash. The value then holds the arguments, so that no others
    can get the same identity.
    """

    __slots__ = ("_max_count", "_values")

    def __init__(self, max_count: int) -> None:
        self._max_count = max_count
        self._values: dict[Key, Value] = {}

    def get(self, key: Key) -> Value | None:
        return self._values.get(key)

    def keep(self, key: Key, value: Value) -> Value:
        if len(self._values) >= self._max_count:
            del self._values[next(iter(self._values))]
        self._values[key] = value
        return value

    def clear(self) -> None:
        self._values.clear()
