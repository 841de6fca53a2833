"""Answer from a bundle as its API server did: the reports read both through the same `Reader`."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from cli.plugin.bundle import archive
from cli.plugin.bundle.layout import MANIFEST, MOST_PAGE_ITEMS, BundleError, ListResult, Manifest, page_member
from cli.plugin.bundle.selectors import field_selector, label_selector
from cli.plugin.reading import resource_of
from cli.plugin.reports.leadership import LEASES
from mooring.kube.failures import UNREADABLE, KubeError, NotFound, Refused, Status, Unknown

_FAILURES: Mapping[int, type[KubeError]] = {403: Refused, 404: NotFound}
Object = dict[str, Any]


class BundleSource:
    """Has the one method of a `Client` that a `Reader` calls; ``manifest`` says when and where the bundle was taken."""

    def __init__(self, bundle: archive.BundleFile) -> None:
        self._bundle = bundle
        self.manifest: Manifest = self._decode(MANIFEST, Manifest)

    async def request(self, method: str, path: str, params: Mapping[str, str] | None = None) -> bytes:
        """Return a page of a list or an object; raise NotFound or Refused where the API server has done so."""
        assert method == "GET", "a bundle is read only"
        of_list, namespace, name = _parts(path)
        result = self._result(of_list, params or {})
        if name is not None:
            return self._object(of_list, result, namespace, name)
        return self._page(of_list, result, namespace, params or {})

    def _result(self, path: str, params: Mapping[str, str]) -> ListResult:
        # What was not read is not known: it may exist.
        absent = ListResult("", code=403, reason="Forbidden", message=f"{path} is not in the bundle")
        result = self.manifest.lists.get(path, absent)
        name = params.get("fieldSelector", "").removeprefix("metadata.name=")
        if path == LEASES and name not in self.manifest.leases:
            result = ListResult(
                result.kind, code=403, reason="Forbidden", message=f"Lease {name!r} is not in the bundle"
            )
        if result.code is not None:
            status = Status(result.code, result.reason, result.message)
            raise _FAILURES.get(result.code, Unknown)(status)
        return result

    def _page(self, path: str, result: ListResult, namespace: str | None, params: Mapping[str, str]) -> bytes:
        if result.kind == "":
            return self._bundle.read(page_member(path, 1))
        number = int(params.get("continue", "1"))
        selects = _selection(namespace, params)
        items = [item for item in self._items(path, number) if selects(item)] if result.pages else []
        more = str(number + 1) if number < result.pages else ""
        metadata = {"resourceVersion": "1", "continue": more}
        return msgspec.json.encode({"kind": f"{result.kind}List", "metadata": metadata, "items": items})

    def _object(self, path: str, result: ListResult, namespace: str | None, name: str) -> bytes:
        selects = _selection(namespace, {"fieldSelector": f"metadata.name={name}"})
        for number in range(1, result.pages + 1):
            for item in filter(selects, self._items(path, number)):
                return msgspec.json.encode({**item, "kind": result.kind})
        raise NotFound(Status(404, "NotFound", f'{resource_of(path)} "{name}" not found'))

    def _items(self, path: str, number: int) -> list[Object]:
        items: list[Object] = self._decode(page_member(path, number), list[Object])
        if len(items) > MOST_PAGE_ITEMS:
            raise BundleError(f"bundle {str(self._bundle.path)!r}: page {number} of {path} has {len(items)} objects")
        return items

    def _decode(self, member: str, kind: Any) -> Any:
        try:
            return msgspec.json.decode(self._bundle.read(member), type=kind)
        except UNREADABLE as unreadable:
            raise BundleError(f"bundle {str(self._bundle.path)!r}: member {member!r}: {unreadable}") from unreadable


@contextmanager
def opened(path: Path) -> Iterator[BundleSource]:
    """Open a bundle; raise BundleError if it is not one, or not whole."""
    with archive.reading(path) as bundle:
        yield BundleSource(bundle)


def _parts(path: str) -> tuple[str, str | None, str | None]:
    """Return the path of a list in all namespaces, the namespace, and the name of an object in it."""
    parts = path.split("/")
    first = 3 if parts[1] == "api" else 4
    prefix, rest = parts[:first], parts[first:]
    namespace = None
    if len(rest) > 2 and rest[0] == "namespaces":
        namespace, rest = rest[1], rest[2:]
    return "/".join([*prefix, *rest[:1]]), namespace, rest[1] if len(rest) > 1 else None


def _selection(namespace: str | None, params: Mapping[str, str]) -> Callable[[Object], bool]:
    has_fields = field_selector(params.get("fieldSelector", ""))
    has_labels = label_selector(params.get("labelSelector", ""))

    def selects(item: Object) -> bool:
        metadata = item.get("metadata")
        if not isinstance(metadata, dict):
            return False
        is_here = namespace is None or metadata.get("namespace") == namespace
        return is_here and has_fields(item) and has_labels(metadata.get("labels") or {})

    return selects
