"""`kubectl mooring when` and `kubectl mooring fits`: when a group starts, and whether a manifest's pods would now.

`when` shows what the leader has recorded; for a group without a promise, a forecast. `fits` creates nothing: the
scheduler's own rules decide about the pods of the manifest beside all objects of the cluster.
"""

from collections.abc import Sequence
from dataclasses import asdict
from importlib import import_module
from types import ModuleType
from typing import Any

from cli.plugin.explaining import NO_NUMPY, UNDECIDABLE, read_objects
from cli.plugin.group_lists import missing, read_groups
from cli.plugin.invocation import Invocation
from cli.plugin.manifest_files import read_text
from cli.plugin.reading import Reader, UnreadableError
from cli.plugin.reports import found_groups, groups
from cli.plugin.reports.tables import Answer, Cell, Table, cells
from scheduler.kube import objects

_WAITS = ("Waiting", "Partial")
_SAID: dict[found_groups.State, str] = {"Scheduled": "It has started.", "Finished": "It has ended."}


async def when(reader: Reader, invocation: Invocation) -> Answer:
    """Return when groups start."""
    found, names = await read_groups(reader, invocation), invocation.arguments.selection.names
    if absent := missing(found, names, invocation.namespace):
        raise UnreadableError("\n".join(absent))
    those = [group for group in found if not names or group.members.title in names]
    items, listed = list[dict[str, str]](), None
    for group in those:
        source, text = "recorded" if group.starts else "", group.starts or _SAID.get(group.state, group.why)
        if not group.starts and group.state in _WAITS and (module := _module("recompute")) is not None:
            listed = listed or await read_objects(reader, module)
            known = {kind: items_of_kind or () for kind, items_of_kind in listed.items()}
            if listed[objects.Node] is not None and listed[objects.Pod] is not None:
                scheduler = invocation.arguments.scheduler[0]
                forecast = module.forecast(known, group.key, scheduler, invocation.now)
                source, text = ("forecast", forecast) if forecast else (source, text)
        item = {"namespace": group.key.namespace, "name": group.members.title, "state": group.state}
        items.append({**item, "source": source, "start": text})
    rows = [cells(item["namespace"], item["name"], item["state"], item["source"], item["start"]) for item in items]
    columns = ("NAMESPACE", "NAME", "STATE", "SOURCE", "START")
    table = Table(columns, rows, empty="no groups of pods", identity=("NAMESPACE", "NAME"))
    return Answer({"kind": "MooringStarts", "v": 1, "items": items}, (table,), identity=("namespace", "name"))


async def fits(reader: Reader, invocation: Invocation) -> Answer:
    """Return whether the pods of manifests would start now; status 1 if one would not."""
    if (module := _module("fits")) is None:
        raise UnreadableError(f"fits: {NO_NUMPY}")
    files = [(file, read_text(file)) for file in invocation.arguments.files]
    listed = await read_objects(reader, module)
    if listed[objects.Node] is None or listed[objects.Pod] is None:
        raise UnreadableError(f"fits: {UNDECIDABLE}")
    known = {kind: items_of_kind or () for kind, items_of_kind in listed.items()}
    outcome: Sequence[Any] = module.decide(files, known, invocation.namespace, invocation.now)
    items = [asdict(start) for start in outcome]
    rows = [
        (
            *cells(start.owner, start.pods),
            _start(start.pods, start.bound),
            *cells(groups.some(start.nodes), start.why),
        )
        for start in outcome
    ]
    table = Table(("OBJECT", "PODS", "STARTS", "NODES", "WHY"), rows, empty="no pods for the scheduler in the files")
    status = 0 if all(start.bound == start.pods for start in outcome) else 1
    return Answer({"kind": "MooringFits", "v": 1, "items": items}, (table,), status=status)


def _start(pods: int, bound: int) -> Cell:
    if not pods:
        return Cell("")
    return Cell("now", "good") if bound == pods else Cell("waits", "warning")


def _module(name: str) -> ModuleType | None:
    """Return a module that decides; None if numpy is not installed, whose import takes longer than other commands."""
    try:
        return import_module(f"cli.plugin.reports.{name}")
    except ModuleNotFoundError as absent:
        if absent.name != "numpy":
            raise
        return None
