"""The formats of objects: as they are kept, in the other event API's form, or as a table."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from devcluster.apiserver.formats import printing
from devcluster.apiserver.kinds import creation
from devcluster.apiserver.kinds.resources import Resource
from devcluster.apiserver.objects import Object, encode
from devcluster.apiserver.store.listing import Page
from devcluster.apiserver.store.store import Entry


@dataclass(frozen=True, slots=True)
class View:
    """Writes objects of one kind for one request."""

    resource: Resource

    def one(self, entry: Entry) -> bytes:
        """Write one object."""
        if creation.stored_as(self.resource).group == self.resource.group:
            return entry.raw
        return encode(creation.from_stored(self.resource, entry.decoded()))

    def page(self, page: Page) -> bytes:
        """Write a list; items of built-in kinds go without kind and apiVersion, as in a real server's lists."""
        head: Object = {"kind": f"{self.resource.kind}List", "apiVersion": self.resource.api_version}
        opened = encode({**head, "metadata": _list_metadata(page)})[:-1]
        skip = self._skipped()
        parts = (b"{" + raw[len(skip) :] if skip else raw for raw in map(self.one, page.entries))
        return opened + b',"items":[' + b",".join(parts) + b"]}"

    def _skipped(self) -> bytes:
        if self.resource.learnt:
            return b""
        return encode({"kind": self.resource.kind, "apiVersion": self.resource.api_version})[:-1] + b","

    def event(self, kind: bytes, entry: Entry) -> bytes:
        """Write one watch event, a line."""
        return b'{"type":"' + kind + b'","object":' + self.one(entry) + b"}\n"

    def bookmark(self, revision: int, initial_end: bool) -> bytes:
        """Write a bookmark; `initial_end` marks the one that ends the initial events of a streamed list."""
        metadata: Object = {"resourceVersion": str(revision), "creationTimestamp": None}
        if initial_end:
            metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
        head = {"kind": self.resource.kind, "apiVersion": self.resource.api_version}
        return encode({"type": "BOOKMARK", "object": {**head, "metadata": metadata}}) + b"\n"


@dataclass(frozen=True, slots=True)
class TableView(View):
    """Writes tables; `include` is what rows carry beside cells."""

    include: str
    now: datetime

    def one(self, entry: Entry) -> bytes:
        """Write a table of one row."""
        metadata = {"resourceVersion": str(entry.revision)}
        return self._table([entry], metadata)

    def page(self, page: Page) -> bytes:
        """Write a table of the page."""
        return self._table(page.entries, _list_metadata(page))

    def _table(self, entries: Iterable[Entry], metadata: Object) -> bytes:
        objects = (entry.decoded() for entry in entries)
        return encode(printing.table(self.resource.storage, objects, metadata, self.include, self.now))


def _list_metadata(page: Page) -> Object:
    metadata: Object = {"resourceVersion": str(page.revision)}
    if page.token:
        metadata["continue"] = page.token
    if page.remaining is not None:
        metadata["remainingItemCount"] = page.remaining
    return metadata
