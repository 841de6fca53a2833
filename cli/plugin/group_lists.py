"""Read what groups of pods are made of: pods, their groups' objects, Jobs and events."""

import asyncio
from dataclasses import replace

from cli.plugin.invocation import Invocation
from cli.plugin.output.errors import all_not_found, not_found
from cli.plugin.reading import Reader, UnreadableError
from cli.plugin.reports import found_groups
from cli.plugin.reports.objects import Event, Node, Pod
from scheduler.kube import objects
from scheduler.kube.workload_objects import JOB_PATHS, POD_GROUP_PATHS, Job


async def read_groups(reader: Reader, invocation: Invocation) -> list[found_groups.FoundGroup]:
    """Return the groups of the namespace, or of all; with a selector, those with a pod that has the labels."""
    scope, labels = invocation.scope, invocation.labels
    about = {"fieldSelector": "involvedObject.kind=Pod,reason=FailedScheduling"}
    listed, events, listed_nodes = await asyncio.gather(
        read_members(reader, scope),
        reader.all(f"/api/v1{scope}/events", Event, about),
        reader.all("/api/v1/nodes", Node),
    )
    found = found_groups.find(
        replace(listed, events=events, nodes=listed_nodes, schedulers=invocation.arguments.scheduler)
    )
    if not labels:
        return found
    selected = {pod.metadata.uid for pod in await reader.must(f"/api/v1{scope}/pods", Pod, labels)}
    return [group for group in found if selected & set(group.pods)]


async def read_members(reader: Reader, scope: str) -> found_groups.ListedObjects:
    """Return pods, PodGroups of each kind, and Jobs of a namespace or, where ``scope`` is empty, of all."""
    listed, listed_jobs, of_kinds = await asyncio.gather(
        reader.must(f"/api/v1{scope}/pods", objects.Pod),
        reader.optional([_scoped(path, scope) for path in JOB_PATHS], Job),
        asyncio.gather(
            *(
                reader.optional([_scoped(path, scope) for path in paths], kind)
                for kind, paths in POD_GROUP_PATHS.items()
            )
        ),
    )
    return found_groups.ListedObjects(listed, dict(zip(POD_GROUP_PATHS, of_kinds, strict=True)), jobs=listed_jobs or ())


def _scoped(path: str, scope: str) -> str:
    """Return the path of a list in a namespace, given that of all namespaces."""
    parent, _, resource = path.rpartition("/")
    return f"{parent}{scope}/{resource}"


def named(found: list[found_groups.FoundGroup], name: str, namespace: str) -> list[found_groups.FoundGroup]:
    """Return the groups of this name: those of several sources may have it. Raise UnreadableError if none has it."""
    those = [group for group in found if group.members.title == name and group.key.namespace == namespace]
    if not those:
        raise UnreadableError(not_found("groups", name))
    return those


def missing(found: list[found_groups.FoundGroup], names: tuple[str, ...], namespace: str) -> tuple[str, ...]:
    """Return the errors about names that no group of a namespace has."""
    there = {group.members.title for group in found if group.key.namespace == namespace}
    return all_not_found("groups", [name for name in names if name not in there])
