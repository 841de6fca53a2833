"""Read a cluster's objects and the captures of its nodes. Every request to the API server is a list in pages."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from cli.plugin.assess.node_archives import ArchiveError, archives_in, node_of, read_capture
from cli.plugin.assess.snapshot import ATTACHMENTS, CLAIMS, NODES, PODS, SLICES, NodeCapture, Object, Snapshot, name_of
from cli.plugin.bundle.contents import AROUND
from cli.plugin.reading import Reader, ReportProgress, Source
from mooring.kube.nesting import cut_deep_nesting
from scheduler.kube import objects
from scheduler.kube.workload_objects import JOB_PATHS, POD_GROUP_PATHS

# Kinds with pod templates; the value is the kind, which the items of a list lack.
WORKLOADS: Mapping[str, str] = {
    "/apis/apps/v1/deployments": "Deployment",
    "/apis/apps/v1/daemonsets": "DaemonSet",
    "/apis/apps/v1/statefulsets": "StatefulSet",
    "/apis/batch/v1/jobs": "Job",
    "/apis/batch/v1/cronjobs": "CronJob",
    "/apis/jobset.x-k8s.io/v1alpha2/jobsets": "JobSet",
    "/apis/leaderworkerset.x-k8s.io/v1/leaderworkersets": "LeaderWorkerSet",
    "/apis/kubeflow.org/v2beta1/mpijobs": "MPIJob",
    "/apis/kubeflow.org/v1/pytorchjobs": "PyTorchJob",
    "/apis/ray.io/v1/rayclusters": "RayCluster",
}
# Kinds of which only one version is read, and what is not served is no fault.
_OPTIONAL: tuple[Sequence[str], ...] = (
    *((path,) for path in AROUND),
    *((path,) for path in WORKLOADS if path not in AROUND),
    (ATTACHMENTS,),
    CLAIMS,
    SLICES,
    *POD_GROUP_PATHS.values(),
    objects.RUNTIME_CLASS_PATHS,
)
# Every list that may be read, the kind of its objects, for archives.
KINDS: Mapping[str, str] = {
    NODES: "Node",
    PODS: "Pod",
    **AROUND,
    **WORKLOADS,
    **dict.fromkeys(JOB_PATHS, "Job"),
    ATTACHMENTS: "NetworkAttachmentDefinition",
    **dict.fromkeys(CLAIMS, "ResourceClaim"),
    **dict.fromkeys(SLICES, "ResourceSlice"),
    **{path: "PodGroup" for paths in POD_GROUP_PATHS.values() for path in paths},
    **dict.fromkeys(objects.RUNTIME_CLASS_PATHS, "RuntimeClass"),
}
OpenArchive = Callable[[], IO[bytes]]
Archives = list[tuple[str, OpenArchive]]


class ShallowSource:
    """Answers without values that are nested too deeply: fields that may hold anything are read here, too."""

    def __init__(self, source: Source) -> None:
        self._source = source

    async def request(self, method: str, path: str, /, *, params: Mapping[str, str] | None = None) -> bytes:
        return cut_deep_nesting(await self._source.request(method, path, params=params))


async def read_lists(reader: Reader) -> dict[str, Sequence[Object] | None]:
    """Return the lists that the user may read, by path; raise a KubeError without nodes or pods."""
    found: dict[str, Sequence[Object] | None] = {}
    found[NODES], found[PODS] = await asyncio.gather(
        reader.must(NODES, dict[str, Any]), reader.must(PODS, dict[str, Any])
    )
    for paths in _OPTIONAL:
        for path in paths:
            listed = await reader.optional((path,), dict[str, Any])
            found[path] = listed
            if listed:
                break
    return found


def captures_of(
    archives: Iterable[tuple[str, OpenArchive]], tell: ReportProgress
) -> tuple[dict[str, NodeCapture], dict[str, str]]:
    """Read the captures of nodes; return also why some were skipped."""
    captures: dict[str, NodeCapture] = {}
    failed: dict[str, str] = {}
    for number, (node, opened) in enumerate(archives, start=1):
        tell("captures of nodes", number)
        try:
            with opened() as file:
                captures[node] = read_capture(file, node)
        except (ArchiveError, OSError, RuntimeError) as error:
            failed[node] = str(error)
    return captures, failed


def in_folder(folder: str, nodes: Sequence[str]) -> Archives:
    """Return the captures in a folder by node; raise RuntimeError if the folder cannot be read."""
    try:
        paths = archives_in(Path(folder))
    except OSError as unreadable:
        raise RuntimeError(f"--nodes: folder {folder!r} cannot be read: {unreadable.strerror}") from unreadable
    return [(node_of(path, nodes), _opener(path)) for path in paths]


def _opener(path: Path) -> OpenArchive:
    return lambda: path.open("rb")


async def read_snapshot(
    reader: Reader, archives_for: Callable[[Sequence[str]], Archives], now: float, tell: ReportProgress
) -> tuple[Snapshot, Archives]:
    """Read everything, with the archives for the nodes of these names; raise a KubeError or RuntimeError."""
    lists = await read_lists(reader)
    nodes = [name_of(node) for node in lists[NODES] or ()]
    archives = archives_for(nodes)
    captures, failed = captures_of(archives, tell)
    for stranger in captures.keys() - set(nodes):
        failed[stranger] = "no node of the cluster has this name"
        del captures[stranger]
    return Snapshot(lists, now, captures, failed), archives
