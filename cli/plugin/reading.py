"""Read lists from the API server: in pages, decoded by type, and without what there is no right to.

A list that is forbidden is noted with the right that is missing, and what can be read is shown; so is an object that
does not decode.
"""

from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

import msgspec

from mooring.kube.client import Client
from mooring.kube.failures import Gone, NotFound, Refused

T = TypeVar("T")
_PAGE = 500
# The list began anew so often because its pages had expired: then the error is told.
_MOST_STARTS = 3
Tell = Callable[[str, int], None]


class _ListMeta(msgspec.Struct, rename={"next_page": "continue"}):
    next_page: str = ""


class _Page(msgspec.Struct, Generic[T]):
    items: list[T] | None = None
    metadata: _ListMeta = msgspec.field(default_factory=_ListMeta)


class _Object(msgspec.Struct):
    metadata: dict[str, Any] = {}


class Reader:
    """Reads from one API server; ``notes`` collects what could not be read. ``tell`` is told how far a list is."""

    def __init__(self, client: Client, tell: Tell = lambda _what, _count: None) -> None:
        self._client = client
        self._tell = tell
        self.notes: list[str] = []

    async def one(self, path: str, kind: type[T]) -> T:
        """Return one object; raise a KubeError."""
        return msgspec.json.decode(await self._client.request("GET", path), type=kind)

    async def all(self, path: str, kind: type[T], params: Mapping[str, str] | None = None) -> list[T] | None:
        """Return all objects of a list; None, with a note, where there is no right to it or no such kind."""
        for start in range(1, _MOST_STARTS + 1):
            try:
                return await self._pages(path, kind, params or {})
            except Gone:
                if start == _MOST_STARTS:
                    raise
            except Refused as refused:
                if refused.status.code != 403:
                    raise
                self.notes.append(f"forbidden: needs the right to list {_resource(path)}")
                return None
            except NotFound:
                self.notes.append(f"this API server has no {_resource(path)}")
                return None
        return None

    async def _pages(self, path: str, kind: type[T], params: Mapping[str, str]) -> list[T]:
        decode = msgspec.json.Decoder(_Page[kind]).decode  # type: ignore[valid-type]
        found: list[T] = []
        token = ""
        while True:
            asked = {**params, "limit": str(_PAGE)} | ({"continue": token} if token else {})
            body = await self._client.request("GET", path, params=asked)
            try:
                page: _Page[T] = decode(body)
            except msgspec.ValidationError:
                page = self._one_by_one(body, kind)
            found += page.items or ()
            token = page.metadata.next_page
            if not token:
                return found
            self._tell(_resource(path), len(found))

    def _one_by_one(self, body: bytes, kind: type[T]) -> _Page[T]:
        """Decode a page that holds what does not decode, without that."""
        page = msgspec.json.decode(body, type=_Page[msgspec.Raw])
        found = []
        for raw in page.items or ():
            try:
                found.append(msgspec.json.decode(raw, type=kind))
            except msgspec.ValidationError as unreadable:
                named = msgspec.json.decode(raw, type=_Object).metadata
                name = "/".join(str(named[key]) for key in ("namespace", "name") if key in named)
                self.notes.append(f"{kind.__name__.lower()} {name!r} is left out: {unreadable}")
        return _Page(found, page.metadata)


def _resource(path: str) -> str:
    """Name the resource of a list's path as RBAC does."""
    parts = path.split("/")
    namespace = f" in namespace {parts[parts.index('namespaces') + 1]!r}" if "namespaces" in parts[:-1] else ""
    group = f".{parts[2]}" if parts[1] == "apis" else ""
    return f"{parts[-1]}{group}{namespace}"
