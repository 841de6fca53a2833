"""Follow a collection: everything that is there, then every change, for as long as the caller listens.

    async for event in watch(client, "/api/v1/pods", decoder(Pod), {"fieldSelector": "spec.nodeName=n1"}):
        match event:
            case Synced(entries): ...      # the complete set, first and after each gap: compare with yours
            case Changed(identity, item): ...
            case Removed(identity): ...
            case Unreadable(identity, why): ...   # this object could not be decoded; all others go on

The end of a stream is normal (servers cut slow readers with a clean end): the watch resumes where it stopped and loses
nothing. After 410, or an ERROR event, it lists anew and yields another `Synced`. Lists carry no resourceVersion, so
they are never older than the call. The caller must only take events away here, not work on them.
"""

import asyncio
import random
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, aclosing
from typing import NamedTuple, TypeVar

import msgspec
import structlog

from mooring.kube.client import Client
from mooring.kube.events import Changed, Event, Identity, Removed, Synced, Unreadable
from mooring.kube.failures import Gone, KubeError, Status, Unknown, failure_of
from mooring.kube.persist import persist

__all__ = ["Changed", "Event", "Identity", "Removed", "Synced", "Unreadable", "decoder", "watch"]

_log = structlog.get_logger()

T = TypeVar("T")
Decode = Callable[[msgspec.Raw], T]
_PAGE = 500
# The server ends a watch after this long, in seconds, at a random point so that not all of them return at once.
_WATCH_S = (240, 300)
# A server sends a bookmark about every minute where nothing happens. Silence for longer, in seconds, means that the
# connection is dead; where it does not, opening another stream at the same version costs next to nothing.
_SILENCE_S = 90
# A stream that ends without a word is opened again after this long, in seconds, times a random factor.
_PAUSE_S = 0.2


class _Object(msgspec.Struct):
    metadata: Identity = Identity()


class _ListMeta(msgspec.Struct, rename={"resource_version": "resourceVersion", "next_page": "continue"}):
    resource_version: str = ""
    next_page: str = ""


class _List(msgspec.Struct):
    items: list[msgspec.Raw] | None = None
    metadata: _ListMeta = msgspec.field(default_factory=_ListMeta)


class _Line(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _Change(NamedTuple):
    """A line of a watch; ``type`` is ADDED, MODIFIED, DELETED or BOOKMARK."""

    type: str
    identity: Identity
    object: msgspec.Raw

    @property
    def version(self) -> str:
        return self.identity.resource_version


_decode_object = msgspec.json.Decoder(_Object).decode
_decode_list = msgspec.json.Decoder(_List).decode
_decode_line = msgspec.json.Decoder(_Line).decode


def decoder(kind: type[T]) -> Decode[T]:
    """Return a typed decoder of JSON for a msgspec Struct with the fields that the caller uses."""
    return msgspec.json.Decoder(kind).decode


async def watch(
    client: Client, path: str, decode: Decode[T], params: Mapping[str, str] | None = None
) -> AsyncIterator[Event[T]]:
    """List ``path``, then follow it for ever; what fails is logged and tried again, 30 s apart at the most."""
    selected = dict(params or {})
    while True:
        listed, version = await _list(client, path, selected, decode)
        yield Synced(tuple(listed))
        # What is known of each object lives with the caller from here on.
        del listed
        async with aclosing(_follow(client, path, selected, version)) as batches:
            async for batch in batches:
                for change in batch:
                    yield _event(change, decode)


def _event(change: _Change, decode: Decode[T]) -> Event[T]:
    return Removed(change.identity) if change.type == "DELETED" else _read(change.identity, change.object, decode)


def _read(identity: Identity, raw: msgspec.Raw, decode: Decode[T]) -> Changed[T] | Unreadable:
    try:
        return Changed(identity, decode(raw))
    except (msgspec.MsgspecError, RecursionError, ValueError) as unreadable:
        return Unreadable(identity, str(unreadable))


def _identify(raw: msgspec.Raw) -> Identity:
    try:
        return _decode_object(raw).metadata
    except (msgspec.MsgspecError, RecursionError, ValueError):
        return Identity()


async def _follow(
    client: Client, path: str, selected: dict[str, str], version: str
) -> AsyncGenerator[list[_Change], None]:
    """Yield the changes after ``version``, over as many streams as it takes; return when that version is too old."""
    while True:
        heard = False
        try:
            async with AsyncExitStack() as stack:
                async for texts in await _open(client, path, selected | {"resourceVersion": version}, stack):
                    changes, failed = _changes(texts)
                    heard = heard or bool(changes)
                    version = next((seen for one in reversed(changes) if (seen := one.version)), version)
                    yield [one for one in changes if one.type != "BOOKMARK"]
                    if failed is not None:
                        raise failed
        except Gone:
            return
        except KubeError as lost:
            _log.info("watch was cut", path=path, reason=str(lost))
        if not heard:
            await asyncio.sleep(_PAUSE_S * (0.5 + random.random()))


@persist
async def _list(
    client: Client, path: str, selected: Mapping[str, str], decode: Decode[T]
) -> tuple[list[Changed[T] | Unreadable], str]:
    """Return all objects, decoded page by page, and the version to watch from."""
    entries: list[Changed[T] | Unreadable] = []
    token = ""
    while True:
        try:
            page = await _page(client, path, selected, token)
        except Gone:
            # The token outlived its snapshot: begin again.
            entries, token = [], ""
            continue
        entries += [_read(_identify(raw), raw, decode) for raw in page.items or ()]
        token = page.metadata.next_page
        if not token:
            return entries, page.metadata.resource_version


async def _page(client: Client, path: str, selected: Mapping[str, str], token: str) -> _List:
    params = {**selected, "limit": str(_PAGE)} | ({"continue": token} if token else {})
    body = await client.request("GET", path, params=params)
    try:
        return _decode_list(body)
    except (msgspec.MsgspecError, RecursionError) as unreadable:
        raise Unknown(Status(200, message=f"GET {path}: not a list: {unreadable}")) from unreadable


@persist
async def _open(
    client: Client, path: str, params: Mapping[str, str], stack: AsyncExitStack
) -> AsyncIterator[list[bytes]]:
    """Open one stream, which ``stack`` closes, and return its lines."""
    options = {"watch": "true", "allowWatchBookmarks": "true", "timeoutSeconds": str(random.randint(*_WATCH_S))}
    return await stack.enter_async_context(client.stream(path, {**params, **options}, _SILENCE_S))


def _changes(texts: Iterable[bytes]) -> tuple[list[_Change], KubeError | None]:
    """Return the changes up to the first line that is none, and what that line means."""
    found: list[_Change] = []
    for text in texts:
        try:
            line = _decode_line(text)
        except msgspec.MsgspecError as unreadable:
            return found, Unknown(Status(200, message=f"not a watch event: {unreadable}"))
        except RecursionError:
            # Whole, but nested beyond reason: it would come again after every new start, so the rest goes on without.
            _log.warning("watch event left out: nested too deeply", size=len(text))
            continue
        if line.type == "ERROR":
            return found, failure_of(bytes(line.object))
        found.append(_Change(line.type, _identify(line.object), line.object))
    return found, None
