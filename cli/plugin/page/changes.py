"""What differs between two reports: a browser gets that alone. ``assets/report_changes.js`` applies it. Pure."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

Item = Mapping[str, Any]
# The lists that are compared by their items, and what identifies an item.
KEYS: Mapping[str, Callable[[Item], str]] = {
    "nodes": lambda node: str(node["node"]),
    "pods": lambda pod: str(pod["uid"]),
    "groups": lambda group: f"{group['namespace']}/{group['name']}/{group['source']}",
    "gpus": lambda gpu: f"{gpu['node']}/{gpu['pci']}/{gpu['held']['pod'] if gpu['held'] else ''}",
}
# These change all the time: when the report was taken, and in a check how long ago a Lease was renewed.
_TIME = "taken_at"


def changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Return the items to ``put`` and the keys to ``drop`` of each list, and all other fields to ``set``.

    A list in which a key is not unique is set as a whole.
    """
    lists: dict[str, Any] = {}
    fields: dict[str, Any] = {}
    for name, value in new.items():
        before = old.get(name)
        if name in KEYS and isinstance(value, list) and isinstance(before, list):
            found = _of_list(before, value, KEYS[name])
            if found is None:
                fields |= {name: value} if value != before else {}
            elif found:
                lists[name] = found
        elif value != before:
            fields[name] = value
    return {"set": fields, "lists": lists}


def is_news(made: Mapping[str, Any], old: Mapping[str, Any]) -> bool:
    """Return whether changes to a report are more than its time."""
    fields = {name: value for name, value in made["set"].items() if name != _TIME}
    if "checks" in fields and _states(fields["checks"]) == _states(old.get("checks")):
        del fields["checks"]
    return bool(fields or made["lists"])


def _states(checks: object) -> object:
    return [(check["check"], check["state"]) for check in checks] if isinstance(checks, list) else checks


def _of_list(old: Sequence[Item], new: Sequence[Item], key: Callable[[Item], str]) -> dict[str, Any] | None:
    """Return what to put and to drop; None if two items have one key, as the groups of a Job that was made again."""
    before = {key(item): item for item in old}
    put, keys = [], set[str]()
    for item in new:
        name = key(item)
        keys.add(name)
        kept = before.get(name)
        # Most items are the same objects, as nothing they depend on has changed.
        if kept is not item and kept != item:
            put.append(item)
    if len(before) < len(old) or len(keys) < len(new):
        return None
    drop = [name for name in before if name not in keys]
    return {"put": put, "drop": drop} if put or drop else {}
