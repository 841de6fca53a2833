"""Read from the API server what a support bundle has, and add it to the archive, redacted."""

from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from cli.plugin.bundle.archive import BundleWriter, writing
from cli.plugin.bundle.contents import (
    README_TEXT,
    VERSION,
    BundledList,
    Object,
    concerns,
    is_ours,
    lists,
    scheduler_of,
)
from cli.plugin.bundle.layout import (
    FOLDER,
    MANIFEST,
    MOST_MEMBER_BYTES,
    MOST_PAGE_ITEMS,
    PAGE_BYTES,
    README,
    ListResult,
    Manifest,
    page_member,
)
from cli.plugin.bundle.redact import redact_object, redact_text
from cli.plugin.invocation import Invocation
from cli.plugin.reading import missing_right, resource_of
from cli.plugin.reports.leadership import LEASES, lease_name
from cli.plugin.reports.tables import Answer, Cell, Table
from mooring.kube.answers import check_list
from mooring.kube.client import Client
from mooring.kube.failures import UNREADABLE, Gone, KubeError, NotFound, Status, Unknown
from mooring.kube.nesting import cut_deep_nesting

# A list starts again so often because its pages expired: then it is left out.
_MOST_STARTS = 3
# Of each container these lines and bytes at most, and of so many pods: those that are not ready first.
_LOG = {"tailLines": "10000", "limitBytes": str(4 << 20), "timestamps": "true"}
_MOST_LOG_BYTES = 4 << 20
_MOST_PODS = 100
# The ports of Mooring's programs that serve metrics.
_METRICS = ("metrics", "getpfs")
# Names in an archive are at most so long: no pod of Mooring's has a longer one.
_LONGEST_PART = 95
Tell = Callable[[str, int], None]


async def write_bundle(client: Client, invocation: Invocation, tell: Tell) -> Answer:
    """Write the file that the command line names; raise a KubeError or BundleError."""
    now = invocation.now
    stamp = datetime.fromtimestamp(now, UTC).strftime("%Y%m%dT%H%M%SZ")
    path = Path(invocation.arguments.file or f"mooring-support-{stamp}.tar.gz")
    with writing(path, int(now)) as writer:
        collector = Collector(client, writer, tell)
        await collector.collect(invocation)
    counts = collector.counts
    found = ", ".join(f"{count} {resource}" for resource, count in counts.items() if count)
    document = {"kind": "MooringSupportBundle", "v": 1, "file": str(path), "objects": counts}
    text = f"support bundle {str(path)!r} written ({found}): look through it before you send it"
    notes = tuple(dict.fromkeys(collector.notes))
    return Answer(document | {"notes": list(notes)}, (Table(("",), [(Cell(text),)]),), notes)


class _ListMeta(msgspec.Struct, rename={"next_page": "continue", "resource_version": "resourceVersion"}):
    next_page: str = ""
    resource_version: str = ""


class _Page(msgspec.Struct):
    items: list[dict[str, Any]] | None = None
    metadata: _ListMeta = msgspec.field(default_factory=_ListMeta)
    kind: str = ""


class Collector:
    """Adds one cluster to one archive; ``notes`` says what could not be read."""

    def __init__(self, client: Client, writer: BundleWriter, tell: Tell) -> None:
        self._client = client
        self._writer = writer
        self._tell = tell
        self._results: dict[str, ListResult] = {}
        self._uids: set[str] = set()
        self._programs: dict[str, Object] = {}
        self._schedulers: set[str] = set()
        # By path and parameters: a list that starts again counts once.
        self._counts: dict[tuple[str, str], int] = {}
        self.notes: list[str] = []

    @property
    def counts(self) -> Counter[str]:
        """How many objects of each resource the bundle has."""
        found: Counter[str] = Counter()
        for (path, _), count in self._counts.items():
            found[path.rpartition("/")[2]] += count
        return found

    async def collect(self, invocation: Invocation) -> None:
        """Read everything; raise a KubeError if not even nodes can be listed for another reason than missing rights."""
        self._writer.add(README, README_TEXT.encode())
        self._schedulers.update(invocation.arguments.scheduler)
        for one in lists(self._uids):
            await self._add_list(one, may_fail=bool(self._results))
        leases = await self._add_leases()
        await self._add_version()
        await self._add_programs()
        then = (invocation.now, invocation.server, invocation.namespace, invocation.version)
        manifest = Manifest(*then, self._results, leases, self.notes)
        self._writer.add(MANIFEST, msgspec.json.format(msgspec.json.encode(manifest)))

    async def _add_list(self, one: BundledList, *, may_fail: bool) -> None:
        try:
            pages = await self._pages(one)
        except KubeError as error:
            if error.status.code != 403 and not may_fail:
                raise
            self._fail(one.path, one.kind, error)
        else:
            self._add_pages(one, pages)

    def _add_pages(self, one: BundledList, pages: list[bytes]) -> None:
        for number, page in enumerate(pages, start=1):
            self._writer.add(page_member(one.path, number), page)
        self._results[one.path] = ListResult(one.kind, pages=len(pages))

    def _fail(self, path: str, kind: str, failed: KubeError) -> None:
        status = failed.status
        self._results[path] = ListResult(kind, 0, status.code, status.reason, redact_text(status.message))
        if status.code == 403:
            self.notes.append(missing_right(path))
        elif not isinstance(failed, NotFound):
            self.notes.append(redact_text(f"{resource_of(path)} left out: {failed}"))

    async def _pages(self, one: BundledList) -> list[bytes]:
        for start in range(1, _MOST_STARTS + 1):
            try:
                return [page async for page in self._redacted_pages(one)]
            except Gone:
                if start == _MOST_STARTS:
                    raise
        raise AssertionError("the last start returns or raises")

    async def _redacted_pages(self, one: BundledList) -> AsyncIterator[bytes]:
        token, count = "", 0
        while True:
            asked = {**one.params, "limit": str(MOST_PAGE_ITEMS)} | ({"continue": token} if token else {})
            page = _decode(one.path, await self._client.request("GET", one.path, params=asked))
            items = [item for item in page.items or () if one.takes(item)]
            count += len(items)
            for item in items if one.kind == "Pod" else ():
                self._take_pod(item)
            for part in _parts(items):
                yield part
            self._counts[one.path, str(one.params)] = count
            token = page.metadata.next_page
            if not token:
                return
            self._tell(resource_of(one.path), count)

    def _take_pod(self, pod: Object) -> None:
        if concerns(pod):
            uid = str(pod["metadata"].get("uid", ""))
            self._uids.add(uid)
            self._schedulers.add(scheduler_of(pod))
            if is_ours(pod):
                self._programs[uid] = pod

    async def _add_leases(self) -> list[str]:
        """Add the Leases of the schedulers, and return their names: the right to list them may be for some only."""
        pages: list[bytes] = []
        read: list[str] = []
        for name in sorted({lease_name(scheduler) for scheduler in self._schedulers}):
            one = BundledList(LEASES, "Lease", {"fieldSelector": f"metadata.name={name}"})
            try:
                pages += await self._pages(one)
            except KubeError as error:
                self._fail(LEASES, "Lease", error)
            else:
                read.append(name)
        if read:
            self._add_pages(BundledList(LEASES, "Lease"), pages)
        return read

    async def _add_version(self) -> None:
        try:
            self._writer.add(page_member(VERSION, 1), await self._client.request("GET", VERSION))
        except KubeError as error:
            self.notes.append(f"{VERSION} left out: {error}")
        else:
            self._results[VERSION] = ListResult("", pages=1)

    async def _add_programs(self) -> None:
        """Add logs and metrics of Mooring's pods."""
        pods = sorted(self._programs.values(), key=_order)
        if len(pods) > _MOST_PODS:
            self.notes.append(f"logs and metrics of {len(pods) - _MOST_PODS} of {len(pods)} pods left out")
        for pod in pods[:_MOST_PODS]:
            namespace, name = str(pod["metadata"].get("namespace", "")), str(pod["metadata"].get("name", ""))
            path = f"/api/v1/namespaces/{namespace}/pods/{name}"
            for container, restarts in _containers(pod):
                member = f"{FOLDER}/logs/{namespace}/{name}/{container}"
                await self._add_text(f"{member}.log", f"{path}/log", _LOG | {"container": container})
                if restarts:
                    of_last = _LOG | {"container": container, "previous": "true"}
                    await self._add_text(f"{member}.previous.log", f"{path}/log", of_last)
            for port in list(_metrics_ports(pod))[:1]:
                await self._add_text(f"{FOLDER}/metrics/{namespace}/{name}.txt", f"{path}:{port}/proxy/metrics", {})

    async def _add_text(self, member: str, path: str, params: Mapping[str, str]) -> None:
        if any(len(part) > _LONGEST_PART for part in member.split("/")):
            self.notes.append(f"{path} left out: a name in it is too long")
            return
        try:
            text = await self._client.request("GET", path, params=params)
        except KubeError as error:
            self.notes.append(redact_text(f"{path} left out: {error}"))
        else:
            shown = redact_text(text.decode(errors="replace")[-_MOST_LOG_BYTES:]).encode()
            self._writer.add(member, shown[-MOST_MEMBER_BYTES:])


def _decode(path: str, body: bytes) -> _Page:
    try:
        page = msgspec.json.decode(body, type=_Page)
    except RecursionError:
        page = msgspec.json.decode(cut_deep_nesting(body), type=_Page)
    except UNREADABLE as unreadable:
        odd = f"GET {path}: the answer is not a Kubernetes API server's: {unreadable}"
        raise Unknown(Status(200, message=odd)) from unreadable
    check_list(page.kind, page.metadata.resource_version)
    return page


def _parts(items: list[dict[str, Any]]) -> Iterator[bytes]:
    """Yield redacted objects as JSON lists of a few MiB."""
    encoded: list[bytes] = []
    size = 0
    for item in items:
        encoded.append(msgspec.json.encode(redact_object(item)))
        size += len(encoded[-1])
        if size > PAGE_BYTES:
            yield b"[" + b",".join(encoded) + b"]"
            encoded, size = [], 0
    if encoded:
        yield b"[" + b",".join(encoded) + b"]"


def _order(pod: Object) -> tuple[bool, bool, str, str]:
    """Return the order of the pods whose logs are read: those that are not ready first, then the scheduler's."""
    metadata = pod["metadata"]
    conditions = (pod.get("status") or {}).get("conditions") or ()
    is_ready = any(condition.get("type") == "Ready" and condition.get("status") == "True" for condition in conditions)
    is_scheduler = "scheduler" in str(metadata.get("labels", {}).get("app.kubernetes.io/name", ""))
    return is_ready, not is_scheduler, str(metadata.get("namespace", "")), str(metadata.get("name", ""))


def _containers(pod: Object) -> Iterator[tuple[str, int]]:
    """Yield a pod's containers, and how often each has restarted."""
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    restarts = {
        one.get("name"): one.get("restartCount") or 0
        for key in ("initContainerStatuses", "containerStatuses")
        for one in status.get(key) or ()
    }
    for key in ("initContainers", "containers"):
        for container in spec.get(key) or ():
            yield str(container.get("name", "")), int(restarts.get(container.get("name"), 0))


def _metrics_ports(pod: Object) -> Iterator[int]:
    for container in (pod.get("spec") or {}).get("containers") or ():
        for port in container.get("ports") or ():
            if port.get("name") in _METRICS:
                yield int(port.get("containerPort", 0))
