"""List and watch a collection: everything that exists, then every change, for as long as the caller listens.

    async for event in watch(client, "/api/v1/pods", Decoder(Pod), {"fieldSelector": "spec.nodeName=n1"}):
        match event:
            case Synced(entries): ...      # the complete set, first and after each gap: compare with yours
            case Changed(identity, item): ...
            case Removed(identity): ...
            case Unreadable(identity, why): ...   # this object could not be decoded; others are not affected

The end of a stream is normal, for example because servers close streams of slow readers: the watch resumes where it
stopped and loses nothing. After 410 it lists again and yields another `Synced`; `mooring.kube.retry.Backoff` waits
before that. Lists are requested without a resourceVersion, so they are never older than the call. An object that the
caller already has in the same version is not decoded again. An incomplete answer (`mooring.kube.answers`) is requested
again. The caller must take events quickly and process them elsewhere.
"""

import asyncio
import random
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec
import structlog

from mooring.kube.answers import check_list, incomplete_answer, missing_field
from mooring.kube.client import Client
from mooring.kube.events import Changed, Event, Identity, Removed, Synced, Unreadable
from mooring.kube.failures import UNREADABLE, Gone, KubeError, NotFound, Refused, Status, Unknown, failure_of
from mooring.kube.nesting import cut_deep_nesting
from mooring.kube.retry import Backoff, Call, P, R, retry, retry_if_served

__all__ = ["Changed", "Decoder", "Event", "Identity", "Removed", "Synced", "Unreadable", "watch"]

_log = structlog.get_logger()

T = TypeVar("T")
_PAGE = 500
# After so many objects, or bytes of them, other tasks get their turn; decoding takes a few milliseconds.
_BATCH_OBJECTS, _BATCH_BYTES = 100, 1 << 20
# Seconds after which the server ends a watch; random, so that not all watches return at once.
_WATCH_S = (240, 300)
# Seconds of silence after which a connection counts as dead. Without changes a server sends a bookmark about every
# minute; if the connection was alive, opening another stream at the same version costs little.
_SILENCE_S = 90


class _Object(msgspec.Struct):
    metadata: Identity = Identity()


class _ListMeta(msgspec.Struct, rename={"resource_version": "resourceVersion", "next_page": "continue"}):
    resource_version: str = ""
    next_page: str = ""


class _List(msgspec.Struct):
    kind: str = ""
    items: list[msgspec.Raw] | None = None
    metadata: _ListMeta = msgspec.field(default_factory=_ListMeta)


class _Line(msgspec.Struct):
    type: str
    object: msgspec.Raw


class WatchLine(NamedTuple, Generic[T]):
    """A parsed line of a watch: its resource version and the event, None for a bookmark."""

    version: str
    event: "Changed[T] | Removed | Unreadable | None"


_decode_object = msgspec.json.Decoder(_Object).decode
_decode_list = msgspec.json.Decoder(_List).decode
_decode_line = msgspec.json.Decoder(_Line).decode
_CHANGE_TYPES = ("ADDED", "MODIFIED")


class Decoder(Generic[T]):
    """Decodes objects as a kind, a msgspec Struct with the fields that the caller uses.

    If the kind's ``metadata`` has all fields that identify an object, a line of a watch is read in one pass. Most of a
    bound pod's line is skipped, and skipping it three times would take as long as decoding the rest.
    """

    def __init__(self, kind: type[T]) -> None:
        self._read = msgspec.json.Decoder(kind).decode
        self._line: Callable[[bytes], Any] | None = None
        if _identifies(kind):
            self._line = msgspec.json.Decoder(msgspec.defstruct("Line", [("type", str), ("object", kind)])).decode

    def __call__(self, raw: msgspec.Raw | bytes) -> T:
        """Return the decoded object; raise msgspec's errors, RecursionError or ValueError."""
        return self._read(raw)

    def read_line(self, text: bytes) -> WatchLine[T] | None:
        """Read an ordinary line in one pass; return None for a line that must be read in pieces."""
        if self._line is None:
            return None
        try:
            line = self._line(text)
        except (msgspec.MsgspecError, RecursionError, ValueError):
            return None
        meta = line.object.metadata
        identity = Identity(meta.name, meta.namespace, meta.uid, meta.resource_version)
        if missing_field(identity):
            return None
        if line.type in _CHANGE_TYPES:
            return WatchLine(identity.resource_version, Changed(identity, line.object))
        return WatchLine(identity.resource_version, Removed(identity)) if line.type == "DELETED" else None


def _identifies(kind: type[Any]) -> bool:
    fields = msgspec.structs.fields(kind) if issubclass(kind, msgspec.Struct) else ()
    types = [field.type for field in fields if field.name == "metadata" and isinstance(field.type, type)]
    return any(
        set(Identity.__struct_fields__) <= set(getattr(metadata_type, "__struct_fields__", ()))
        for metadata_type in types
    )


def _is_known_default(_: Identity) -> bool:
    return False


async def watch(
    client: Client,
    path: str,
    decode: Decoder[T],
    params: Mapping[str, str] | None = None,
    is_known: Callable[[Identity], bool] = _is_known_default,
    *,
    is_optional: bool = False,
) -> AsyncIterator[Event[T]]:
    """List ``path``, then watch it endlessly; failures are logged and retried, at most 30 s apart.

    ``is_known`` returns whether the listener has an object in exactly this version. With ``is_optional``, raise
    NotFound or Refused if the API server does not serve the path, or not to this account.
    """
    selection = dict(params or {})
    list_objects = _policy(_list, is_optional=is_optional)
    backoff = Backoff()
    while True:
        try:
            result = await list_objects(client, path, selection, decode, is_known)
        except Gone as error:
            # A page's token can outlive its snapshot.
            _log.info("list expired between two pages", path=path, reason=str(error))
            await backoff.wait()
            continue
        version = result.version
        yield Synced(tuple(result.entries), tuple(result.unchanged))
        # Drop the references, so that only the caller keeps the objects.
        del result
        changes = _follow(client, path, selection, version, decode, backoff, is_optional=is_optional)
        async with aclosing(changes) as batches:
            async for batch in batches:
                for line in batch:
                    if line.event is not None:
                        yield line.event


def _policy(call: Call[P, R], *, is_optional: bool) -> Call[P, R]:
    return retry_if_served(call) if is_optional else retry(call)


def _read(identity: Identity, raw: msgspec.Raw, decode: Decoder[T]) -> Changed[T] | Unreadable:
    try:
        return Changed(identity, decode(raw))
    except (msgspec.MsgspecError, RecursionError, ValueError) as error:
        return Unreadable(identity, str(error))


def _identify(raw: msgspec.Raw) -> Identity:
    try:
        return _decode_object(raw).metadata
    except (msgspec.MsgspecError, RecursionError, ValueError):
        return Identity()


async def _follow(
    client: Client,
    path: str,
    selection: dict[str, str],
    version: str,
    decode: Decoder[T],
    backoff: Backoff,
    *,
    is_optional: bool,
) -> AsyncGenerator[list[WatchLine[T]], None]:
    """Yield the changes after ``version``, over any number of streams; return when the version is too old."""
    open_stream = _policy(_open, is_optional=is_optional)
    while True:
        has_events = False
        try:
            async with AsyncExitStack() as stack:
                async for texts in await open_stream(client, path, selection | {"resourceVersion": version}, stack):
                    batch, line_error = _read_lines(texts, decode)
                    # A bookmark brings nothing: a server that sends one and ends the stream is not asked at once.
                    has_events = has_events or any(line.event is not None for line in batch)
                    version = next(
                        (line_version for line in reversed(batch) if (line_version := line.version)), version
                    )
                    yield batch
                    if line_error is not None:
                        raise line_error
        except Gone as error:
            _log.info("watch expired: the collection is listed again", path=path, reason=str(error))
            await backoff.wait()
            return
        except KubeError as error:
            if is_optional and isinstance(error, NotFound | Refused):
                raise
            _log.info("watch was interrupted", path=path, reason=str(error))
        if not has_events:
            await backoff.wait()


@dataclass(slots=True)
class _ListResult(Generic[T]):
    """The result of a list so far, and the version to watch from."""

    entries: list[Changed[T] | Unreadable] = field(default_factory=list)
    unchanged: list[Identity] = field(default_factory=list)
    version: str = ""


async def _list(
    client: Client,
    path: str,
    selection: Mapping[str, str],
    decode: Decoder[T],
    is_known: Callable[[Identity], bool],
) -> _ListResult[T]:
    """Return all objects, decoded page by page; raise Gone if the list expires between two pages."""
    result = _ListResult[T]()
    async with aclosing(_pages(client, path, selection)) as pages:
        async for page in pages:
            await _take_in(page, result, decode, is_known)
    return result


async def _take_in(
    page: _List, result: _ListResult[T], decode: Decoder[T], is_known: Callable[[Identity], bool]
) -> None:
    result.version = page.metadata.resource_version
    number = size = 0
    for raw in page.items or ():
        number, size = number + 1, size + len(memoryview(raw))
        identity = _identify(raw)
        if field_name := missing_field(identity):
            raise incomplete_answer(f"{page.kind} with an object whose {field_name} is empty")
        if is_known(identity):
            result.unchanged.append(identity)
        else:
            result.entries.append(_read(identity, raw, decode))
        if number >= _BATCH_OBJECTS or size >= _BATCH_BYTES:
            number = size = 0
            await asyncio.sleep(0)


async def _pages(client: Client, path: str, selection: Mapping[str, str]) -> AsyncGenerator[_List, None]:
    """Yield the pages of a list; request the next page while the caller processes one."""
    next_page: asyncio.Task[_List] | None = asyncio.create_task(_page(client, path, selection, ""))
    try:
        while next_page is not None:
            page = await next_page
            token = page.metadata.next_page
            next_page = asyncio.create_task(_page(client, path, selection, token)) if token else None
            yield page
    finally:
        if next_page is not None:
            next_page.cancel()


async def _page(client: Client, path: str, selection: Mapping[str, str], token: str) -> _List:
    params = {**selection, "limit": str(_PAGE)} | ({"continue": token} if token else {})
    body = await client.request("GET", path, params=params)
    try:
        page = _at_any_depth(_decode_list, body)
    except UNREADABLE as error:
        raise Unknown(Status(200, message=f"GET {path}: not a list: {error}")) from error
    check_list(page.kind, page.metadata.resource_version)
    return page


def _at_any_depth(decode: Callable[[bytes], T], text: bytes) -> T:
    """Decode a text; remove excessive nesting, because otherwise the object would be requested again endlessly."""
    try:
        return decode(text)
    except RecursionError:
        return decode(cut_deep_nesting(text))


async def _open(
    client: Client, path: str, params: Mapping[str, str], stack: AsyncExitStack
) -> AsyncIterator[list[bytes]]:
    """Open one stream, which ``stack`` closes, and return its lines."""
    options = {"watch": "true", "allowWatchBookmarks": "true", "timeoutSeconds": str(random.randint(*_WATCH_S))}
    return await stack.enter_async_context(client.stream(path, {**params, **options}, _SILENCE_S))


def _read_lines(texts: Iterable[bytes], decode: Decoder[T]) -> tuple[list[WatchLine[T]], KubeError | None]:
    """Return the events up to the first invalid line, and the error for that line."""
    lines: list[WatchLine[T]] = []
    for text in texts:
        line = read_line(text, decode)
        if isinstance(line, KubeError):
            return lines, line
        lines.append(line)
    return lines, None


def read_line(text: bytes, decode: Decoder[T]) -> WatchLine[T] | KubeError:
    """Read a line; return an error if it is not a watch event, or is an ERROR event."""
    return decode.read_line(text) or read_line_in_pieces(text, decode)


def read_line_in_pieces(text: bytes, decode: Decoder[T]) -> WatchLine[T] | KubeError:
    """Read a line whose object can be of another kind, in several passes."""
    try:
        line = _at_any_depth(_decode_line, text)
    except UNREADABLE as error:
        return Unknown(Status(200, message=f"not a watch event: {error}"))
    if line.type == "ERROR":
        return failure_of(bytes(line.object))
    identity = _identify(line.object)
    version = identity.resource_version
    if line.type == "BOOKMARK":
        return WatchLine(version, None)
    if field_name := missing_field(identity):
        return incomplete_answer(f"watch event {line.type} of an object whose {field_name} is empty")
    return WatchLine(version, Removed(identity) if line.type == "DELETED" else _read(identity, line.object, decode))
