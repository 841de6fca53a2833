"""A request as a value: what the API server reads of an HTTP request, and what it answers."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from devcluster.apiserver import status
from devcluster.apiserver.formats import protobuf
from devcluster.apiserver.kinds.resources import Resource
from devcluster.apiserver.objects import Object, decode_any
from devcluster.apiserver.routes import Target
from devcluster.apiserver.store import fields
from devcluster.apiserver.store.listing import Query
from devcluster.apiserver.store.selectors import Selector, parse_fields, parse_labels

_TRUE = frozenset({"1", "t", "T", "true", "TRUE", "True"})
_JSON = ("", "application/json")


@dataclass(frozen=True, slots=True)
class Call:
    """A request: method, what it targets, query (the last of equal names counts), and its body."""

    method: str
    target: Target
    query: Mapping[str, str]
    content_type: str
    accept: str
    body: bytes

    def flag(self, name: str) -> bool:
        """Read a boolean of the query; absent is false."""
        return self.query.get(name, "") in _TRUE

    @property
    def watching(self) -> bool:
        """Return whether this GET is a watch."""
        return self.method == "GET" and self.target.name is None and self.flag("watch")

    @property
    def dry_run(self) -> bool:
        """Return whether nothing is to be stored; raise 400 for another value than All."""
        asked = self.query.get("dryRun", "")
        if asked not in ("", "All"):
            raise status.bad_request(f'dryRun: Unsupported value: "{asked}": supported values: "All"')
        return bool(asked)

    def integer(self, name: str) -> int:
        """Read a number of the query; absent is 0; raise 400."""
        text = self.query.get(name, "") or "0"
        if not text.isdigit():
            raise status.bad_request(f"{name}: {text!r} is no number")
        return int(text)

    def selector(self, resource: Resource) -> Selector:
        """Read namespace, labelSelector and fieldSelector; raise 400."""
        labels = parse_labels(self.query.get("labelSelector", ""))
        terms = parse_fields(self.query.get("fieldSelector", ""), fields.allowed(resource.storage))
        return Selector(self.target.namespace, labels, terms)

    def listing(self) -> Query:
        """Read the list options beside the selector; raise 400."""
        match = self.query.get("resourceVersionMatch", "")
        return Query(
            self.integer("limit"), self.query.get("continue", ""), self.query.get("resourceVersion", ""), match
        )

    def parsed(self) -> Any:
        """Read the body as JSON; raise 400."""
        try:
            return decode_any(self.body)
        except msgspec.DecodeError as error:
            raise status.bad_request(f"the object provided is unrecognized: {error}") from error

    def given(self) -> Object:
        """Read the body as an object; raise 400 or 415."""
        if self.content_type == protobuf.MEDIA_TYPE:
            return self._protobuf()
        if self.content_type not in _JSON:
            raise status.unsupported_media_type(self.content_type, ("application/json",))
        parsed = self.parsed()
        if not isinstance(parsed, dict) or not isinstance(parsed.get("metadata", {}), dict | None):
            raise status.bad_request("the object provided is unrecognized: must be an object with metadata")
        return parsed

    def _protobuf(self) -> Object:
        try:
            read = protobuf.decode(self.body)
        except ValueError as error:
            raise status.bad_request(f"the object provided is unrecognized: {error}") from error
        if read is None:
            raise status.unsupported_media_type(self.content_type, ("application/json",))
        return read

    def options(self) -> Object:
        """Read the body of a DELETE, which may be empty; raise 400."""
        parsed = self.parsed() if self.body else {}
        return parsed if isinstance(parsed, dict) else {}


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer that is not a stream: HTTP code and JSON."""

    code: int
    body: bytes
