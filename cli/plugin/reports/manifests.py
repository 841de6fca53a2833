"""Parse manifests and record the line of each value; find the pods in them. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

Path = tuple[str, ...]
_TEMPLATES: Mapping[str, Path] = {
    **dict.fromkeys(
        ("DaemonSet", "Deployment", "Job", "ReplicaSet", "ReplicationController", "StatefulSet"), ("spec", "template")
    ),
    "CronJob": ("spec", "jobTemplate", "spec", "template"),
    "PodTemplate": ("template",),
}
_DEEPEST = 64
# In one document; a few aliases of aliases expand to any number of values.
_MOST_VALUES = 200_000


class ManifestError(Exception):
    """A file that is not YAML, and from which line on."""

    def __init__(self, line: int, rule: str) -> None:
        super().__init__(f"line {line}: {rule}")
        self.line = line
        self.rule = rule


@dataclass(frozen=True, slots=True)
class Place:
    """A value of a document, its path, and the lines of all values (counted from 1) by their whole paths."""

    value: Any
    path: Path
    lines: Mapping[Path, int]

    def at(self, *steps: str) -> "Place":
        """Step into the value; a missing one is None, at the place of its parent."""
        value, path = self.value, self.path
        for step in steps:
            if isinstance(value, list):
                value = value[int(step)] if step.isdecimal() and int(step) < len(value) else None
            else:
                value = value.get(step) if isinstance(value, dict) else None
            path = (*path, step)
        return Place(value, path, self.lines)

    @property
    def line(self) -> int:
        return next(
            self.lines[self.path[:end]] for end in range(len(self.path), -1, -1) if self.path[:end] in self.lines
        )

    @property
    def field(self) -> str:
        return ".".join(self.path)


@dataclass(frozen=True, slots=True)
class PodPlace:
    """A pod, or a pod template, and the object that contains it: ``Deployment/web``."""

    owner: str
    pod: Place
    whole: Place


def pods(text: str) -> Iterator[PodPlace]:
    """Yield the pods of a file in order; raise ManifestError."""
    try:
        loader = yaml.SafeLoader(text)
        while loader.check_node():
            lines: dict[Path, int] = {}
            yield from _pods(Place(_read(loader, loader.get_node(), (), lines), (), lines))
    except yaml.MarkedYAMLError as broken:
        raise ManifestError(broken.problem_mark.line + 1 if broken.problem_mark else 1, str(broken.problem)) from broken
    except yaml.reader.ReaderError as broken:
        unreadable = text[: broken.position]
        raise ManifestError(unreadable.count("\n") + 1, f"character {broken.character:#x} is not allowed") from broken
    except RecursionError as broken:
        raise ManifestError(1, f"nested deeper than {_DEEPEST} levels") from broken
    except (yaml.YAMLError, ValueError) as broken:
        raise ManifestError(1, str(broken)) from broken


def _pods(whole: Place, of: str = "") -> Iterator[PodPlace]:
    """Yield the pods in one object; ``of`` is its kind if it names none, as in a PodList."""
    kind = whole.at("kind").value or of
    items = whole.at("items").value
    if isinstance(kind, str) and kind.endswith("List") and isinstance(items, list):
        for index in range(len(items)):
            yield from _pods(whole.at("items", str(index)), kind.removesuffix("List"))
        return
    owner = f"{kind}/{whole.at('metadata', 'name').value or whole.at('metadata', 'generateName').value or '?'}"
    if kind == "Pod":
        yield PodPlace(owner, whole, whole)
    elif isinstance(kind, str) and kind in _TEMPLATES:
        yield PodPlace(owner, whole.at(*_TEMPLATES[kind]), whole)


def _read(loader: Any, node: Any, path: Path, lines: dict[Path, int]) -> Any:
    """Return a node's value, and record its line and those of all values in it."""
    if len(path) > _DEEPEST:
        raise ManifestError(node.start_mark.line + 1, f"nested deeper than {_DEEPEST} levels")
    if len(lines) > _MOST_VALUES:
        raise ManifestError(node.start_mark.line + 1, f"more than {_MOST_VALUES} values")
    lines[path] = node.start_mark.line + 1
    if isinstance(node, yaml.SequenceNode):
        return [_read(loader, one, (*path, str(index)), lines) for index, one in enumerate(node.value)]
    if not isinstance(node, yaml.MappingNode):
        return loader.construct_object(node)
    loader.flatten_mapping(node)
    found = {}
    for key, value in node.value:
        name = str(loader.construct_object(key, deep=True))
        found[name] = _read(loader, value, (*path, name), lines)
        # A value may begin on a later line than its key, where people search.
        lines[(*path, name)] = key.start_mark.line + 1
    return found
