"""The names of objects that a shell may complete."""

import asyncio
from collections.abc import Mapping

from cli.plugin.group_lists import read_members
from cli.plugin.reading import Reader
from cli.plugin.reports import found_groups, pods
from cli.plugin.reports.objects import Node, Pod
from mooring.kube.access import AccessError, context_names, context_namespace, load_access
from mooring.kube.client import Client
from mooring.kube.failures import KubeError
from scheduler.kube.objects import NodeOutline
from scheduler.kube.workload_objects import Job

# A person waits at the keyboard, in seconds.
_PATIENCE_S = 3.0


def names_of(kind: str, flags: Mapping[str, str]) -> list[str]:
    """Return the names of a kind; none if they cannot be read: a shell shows no errors."""
    kubeconfig, context = flags.get("kubeconfig"), flags.get("context")
    if kind == "context":
        return context_names(kubeconfig)
    try:
        access = load_access(kubeconfig, context)
        namespace = flags.get("namespace") or context_namespace(kubeconfig, context)

        async def read() -> list[str]:
            async with asyncio.timeout(_PATIENCE_S), Client(access, 4, _PATIENCE_S) as client:
                return await _read(Reader(client), kind, namespace)

        return sorted(set(asyncio.run(read())))
    except (AccessError, KubeError, OSError, RuntimeError):
        return []


async def _read(reader: Reader, kind: str, namespace: str) -> list[str]:
    scope = f"/namespaces/{namespace}"
    match kind:
        case "namespace":
            return [one.metadata.name for one in await reader.must("/api/v1/namespaces", NodeOutline)]
        case "node":
            return [one.metadata.name for one in await reader.must("/api/v1/nodes", Node)]
        case "job":
            return [one.metadata.name for one in await reader.must(f"/apis/batch/v1{scope}/jobs", Job)]
        case "group":
            return [one.members.title for one in found_groups.find(await read_members(reader, scope))]
        case _:
            listed = await reader.must(f"/api/v1{scope}/pods", Pod)
            return [pod.metadata.name for pod in listed if pods.concerns(pod)]
