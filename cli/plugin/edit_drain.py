"""`kubectl mooring drain` and `undrain`: write a node's drain annotation.

The write has the resourceVersion of the node that was read. If another program wrote the node meanwhile, it fails with
a Conflict, and the change is repeated on the new node. So two operators do not undo each other's drains.
"""

import msgspec

from cli.plugin.arguments import Arguments
from cli.plugin.reading import Reader
from cli.plugin.reports.drain import (
    DrainError,
    DrainPlan,
    named_targets,
    offered_targets,
    plan_drain,
    plan_undrain,
    report,
)
from cli.plugin.reports.objects import Node, Pod
from cli.plugin.reports.tables import Answer
from mooring import names
from mooring.annotations.drain import dump_drain, read_drain_with_reasons
from mooring.annotations.inventory import Inventory, read_inventory
from mooring.errors import AnnotationError
from mooring.kube.client import MERGE_PATCH, Client
from mooring.kube.failures import Conflict

# Kubelets and controllers write nodes too, some times a minute.
_MOST_TRIES = 10


async def edit_drain(client: Client, reader: Reader, arguments: Arguments) -> Answer:
    """Drain or undrain what the arguments name; raise a KubeError or DrainError."""
    plan = await _write(client, reader, arguments)
    pods = None
    if arguments.command == "drain":
        live = {"fieldSelector": f"spec.nodeName={arguments.drain.node}"}
        pods = await reader.all("/api/v1/pods", Pod, live)
    return report(arguments.drain.node, plan, pods, arguments.drain.dry_run)


async def _write(client: Client, reader: Reader, arguments: Arguments) -> DrainPlan:
    path = f"/api/v1/nodes/{arguments.drain.node}"
    for attempt in range(1, _MOST_TRIES + 1):
        node = await reader.one(path, Node)
        plan = _plan(node, arguments)
        if arguments.drain.dry_run == "client" or all(
            change.state.startswith(("already", "not")) for change in plan.changes
        ):
            return plan
        metadata = {"resourceVersion": node.metadata.resource_version, "annotations": dump_drain(plan.drain)}
        params = {"dryRun": "All"} if arguments.drain.dry_run == "server" else None
        try:
            await client.request("PATCH", path, msgspec.json.encode({"metadata": metadata}), MERGE_PATCH, params)
        except Conflict:
            if attempt == _MOST_TRIES:
                raise
        else:
            return plan
    raise AssertionError("the last conflict is raised")


def _plan(node: Node, arguments: Arguments) -> DrainPlan:
    flags, name, annotations = arguments.drain, node.metadata.name, node.metadata.annotations or {}
    inventory = _inventory(name, annotations.get(names.INVENTORY))
    try:
        drain = read_drain_with_reasons(annotations)
    except AnnotationError as unreadable:
        raise DrainError(f"node {name!r}: {unreadable}; correct or remove it: kubectl annotate") from unreadable
    if arguments.command == "undrain":
        return plan_undrain(drain, named_targets(drain, inventory, name, flags.pfs, flags.vfs))
    if inventory is None:
        raise DrainError(f"node {name!r} publishes no inventory: its PFs are not known")
    targets = offered_targets(name, inventory, flags.pfs, flags.vfs)
    return plan_drain(drain, targets, flags.reason)


def _inventory(node: str, text: str | None) -> Inventory | None:
    try:
        return None if text is None else read_inventory(text)
    except AnnotationError as unreadable:
        raise DrainError(f"node {node!r}: {unreadable}") from unreadable
