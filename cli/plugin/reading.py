"""Read lists from the API server: in pages, decoded by type, and without what permissions do not allow.

A list that is forbidden is noted with the missing permission, and the rest is shown; so is an object that does not
decode. Without the list of a command's main objects there is nothing to show.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from mooring.kube.answers import check_list, check_object
from mooring.kube.failures import Gone, NotFound, Refused, Unknown

T = TypeVar("T")
_PAGE = 500
# A list starts again so often because its pages expired: then the error is raised.
_MOST_STARTS = 3
ReportProgress = Callable[[str, int], None]
# An answer that is not UTF-8 is a UnicodeDecodeError.
_UNDECODED = (msgspec.DecodeError, UnicodeDecodeError)


class UnreadableError(RuntimeError):
    """A command's main object could not be read: the message for a person."""


class _ListMeta(msgspec.Struct, rename={"next_page": "continue", "resource_version": "resourceVersion"}):
    next_page: str = ""
    resource_version: str = ""


class _Page(msgspec.Struct, Generic[T]):
    items: list[T] | None = None
    metadata: _ListMeta = msgspec.field(default_factory=_ListMeta)
    kind: str = ""


class _Object(msgspec.Struct):
    metadata: dict[str, Any] | None = None


class Source(Protocol):
    """What a `Reader` asks: a `Client`, or a support bundle."""

    async def request(self, method: str, path: str, /, *, params: Mapping[str, str] | None = None) -> bytes:
        """Return the body of the answer; raise a KubeError."""


class Reader:
    """A reader of one API server.

    ``notes`` collects what could not be read, ``report_progress`` gets the number of objects read so far.
    """

    # The verbs of RBAC that a list takes.
    _verbs: tuple[str, ...] = ("list",)

    def __init__(self, client: Source, report_progress: ReportProgress = lambda _what, _count: None) -> None:
        self._client = client
        self._report_progress = report_progress
        self.notes: list[str] = []

    async def one(self, path: str, kind: type[T]) -> T:
        """Return one object; raise a KubeError, or UnreadableError."""
        body = await self._client.request("GET", path)
        try:
            return msgspec.json.decode(check_object(kind.__name__, body), type=kind)
        except (Unknown, *_UNDECODED) as odd:
            raise _no_answer(path, odd) from odd

    async def plain(self, path: str, kind: type[T]) -> T:
        """Return an answer that is no stored object; raise a KubeError, or UnreadableError."""
        try:
            return msgspec.json.decode(await self._client.request("GET", path), type=kind)
        except _UNDECODED as odd:
            raise _no_answer(path, odd) from odd

    async def must(self, path: str, kind: type[T], params: Mapping[str, str] | None = None) -> list[T]:
        """Return all objects of a list; raise a KubeError, or UnreadableError."""
        for start in range(1, _MOST_STARTS + 1):
            try:
                return await self._pages(path, kind, params or {})
            except Gone:
                if start == _MOST_STARTS:
                    raise
        raise AssertionError("the last start returns or raises")

    async def named(self, path: str, kind: type[T], names: Sequence[str]) -> tuple[list[T], list[str]]:
        """Return the objects of a list that have these names, and the names that none has; raise as `must` does."""
        lists = await asyncio.gather(
            *(self.must(path, kind, {"fieldSelector": f"metadata.name={name}"}) for name in dict.fromkeys(names))
        )
        absent = [name for name, found in zip(dict.fromkeys(names), lists, strict=True) if not found]
        return [one for found in lists for one in found], absent

    async def all(self, path: str, kind: type[T], params: Mapping[str, str] | None = None) -> list[T] | None:
        """Return all objects of a list; None, with a note, without the permission or for an unknown kind."""
        try:
            return await self._all(path, kind, params or {})
        except NotFound:
            self.notes.append(f"this API server does not serve {resource_of(path)}")
            return None

    async def _all(self, path: str, kind: type[T], params: Mapping[str, str]) -> list[T] | None:
        try:
            return await self.must(path, kind, params)
        except Refused as error:
            if error.status.code != 403:
                raise
            self.notes.append(missing_right(path, self._verbs))
            return None

    async def optional(self, paths: Sequence[str], kind: type[T]) -> list[T] | None:
        """Return all objects of the first of these lists that is served, none if none is.

        None, with a note, without the permission.
        """
        for path in paths:
            try:
                return await self._all(path, kind, {})
            except NotFound:
                continue
        return []

    async def _pages(self, path: str, kind: type[T], params: Mapping[str, str]) -> list[T]:
        decode = msgspec.json.Decoder(_Page[kind]).decode  # type: ignore[valid-type]
        found: list[T] = []
        token = ""
        while True:
            asked = {**params, "limit": str(_PAGE)} | ({"continue": token} if token else {})
            body = await self._client.request("GET", path, params=asked)
            page: _Page[T]
            try:
                page = decode(body)
            except msgspec.ValidationError:
                page = self._one_by_one(path, body, kind)
            except _UNDECODED as odd:
                raise _no_answer(path, odd) from odd
            _check(path, page)
            found += page.items or ()
            token = page.metadata.next_page
            if not token:
                return found
            self._report_progress(resource_of(path), len(found))

    def _one_by_one(self, path: str, body: bytes, kind: type[T]) -> _Page[T]:
        """Decode a page object by object, leaving out what does not decode."""
        try:
            page = msgspec.json.decode(body, type=_Page[msgspec.Raw])
        except msgspec.ValidationError as odd:
            raise _no_answer(path, odd) from odd
        found = []
        for raw in page.items or ():
            try:
                found.append(msgspec.json.decode(raw, type=kind))
            except msgspec.ValidationError as unreadable:
                named = msgspec.json.decode(raw, type=_Object).metadata or {}
                name = "/".join(str(named[key]) for key in ("namespace", "name") if key in named)
                self._leave_out(kind, name, str(unreadable))
        return _Page(found, page.metadata, page.kind)

    def _leave_out(self, kind: type[Any], name: str, why: str) -> None:
        self.notes.append(f"{kind.__name__.lower()} {name!r} is not shown: {why}")


def _check(path: str, page: _Page[T]) -> None:
    try:
        check_list(page.kind, page.metadata.resource_version)
    except Unknown as odd:
        raise _no_answer(path, odd) from odd


def _no_answer(path: str, odd: Exception) -> UnreadableError:
    return UnreadableError(f"GET {path}: the answer is not a Kubernetes API server's: {odd}")


def missing_right(path: str, verbs: Sequence[str] = ("list",)) -> str:
    """Return the note about a list that the permissions do not allow."""
    return f"forbidden: needs the right to {' and '.join(verbs)} {resource_of(path)}"


def resource_of(path: str) -> str:
    """Return the resource of a list's path as RBAC names it."""
    parts = path.split("/")
    namespace = f" in namespace {parts[parts.index('namespaces') + 1]!r}" if "namespaces" in parts[:-1] else ""
    group = f".{parts[2]}" if parts[1] == "apis" else ""
    return f"{parts[-1]}{group}{namespace}"
