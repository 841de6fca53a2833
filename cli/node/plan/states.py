"""Types for the files of a host and for an installation's changes: plain values, which the journal stores.

Paths are the host's own (``/etc/…``), wherever its root folder is mounted. A change contains the previous state, so it
can be undone, and it can be applied or undone any number of times.
"""

import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any


@dataclass(frozen=True, slots=True)
class File:
    """A regular file; bytes that are not UTF-8 become surrogates in its text."""

    text: str
    mode: int = 0o644


@dataclass(frozen=True, slots=True)
class Link:
    """A symbolic link."""

    target: str


State = File | Link | None  # None: the path does not exist.


@dataclass(frozen=True, slots=True)
class KubeletProcess:
    """A running kubelet: its command line, its age in seconds, and the systemd unit that it belongs to."""

    arguments: tuple[str, ...]
    age_s: float
    unit: str = "kubelet.service"


@dataclass(frozen=True, slots=True)
class CniFolders:
    """Where the container runtime looks for network configurations, and where for plugins.

    ``network`` is the name of the configuration that it uses, empty if it is the first one. ``why_unknown`` says why
    the runtime's own configuration could not be read; then the others are the defaults.
    """

    conf: str = "/etc/cni/net.d"
    bin: str = "/opt/cni/bin"
    network: str = ""
    why_unknown: str = ""


@dataclass(frozen=True, slots=True)
class Host:
    """The state of a host: the files and links that an installation reads or writes, and their folders.

    ``used_vfs`` are the PCI addresses of the VFs that the host itself uses; ``kubelet`` is None if none runs.
    """

    found: Mapping[str, File | Link] = field(default_factory=dict)
    folders: frozenset[str] = frozenset()
    used_vfs: frozenset[str] = frozenset()
    kubelet: KubeletProcess | None = None
    cni: CniFolders = CniFolders()

    def at(self, path: str) -> State:
        return self.found.get(path)

    def text(self, path: str) -> str | None:
        """Return a file's text, None without a file."""
        state = self.at(path)
        return state.text if isinstance(state, File) else None

    def below(self, folder: str) -> list[str]:
        """Return the names of the files and links in a folder, in byte order."""
        names = (path[len(folder) + 1 :] for path in self.found if path.startswith(f"{folder}/"))
        return sorted((name for name in names if "/" not in name), key=str.encode)

    def files(self) -> list[str]:
        """Return the paths of all files, in byte order."""
        return sorted((path for path, state in self.found.items() if isinstance(state, File)), key=str.encode)

    def with_text(self, path: str, text: str) -> "Host":
        """Return the host with another text at a path."""
        return replace(self, found={**self.found, path: File(text)})

    def missing_folder(self, path: str) -> str | None:
        """Return the topmost folder that must be created for ``path``, None if all exist."""
        return next((folder for folder in reversed([*_parents(path)]) if folder not in self.folders), None)


def _parents(path: str) -> Iterator[str]:
    """Yield the parent folders of a path, the nearest first, without the root folder."""
    while (path := posixpath.dirname(path)) != "/":
        yield path


@dataclass(frozen=True, slots=True)
class PathChange:
    """A change of a file or link that is ours; ``made`` is the topmost folder that was created for it."""

    path: str
    before: State
    after: State
    made: str | None = None

    def __str__(self) -> str:
        if self.after is None:
            return f"remove {self.path}"
        return f"{'make' if self.before is None else 'replace'} {self.path} ({_shown(self.after)})"


def _shown(state: File | Link) -> str:
    return f"link to {state.target}" if isinstance(state, Link) else "file"


@dataclass(frozen=True, slots=True)
class Edit:
    """A change of a passage in a file that others own; with ``old`` empty, a line is added at the end."""

    path: str
    old: str
    new: str

    def __str__(self) -> str:
        return f"edit {self.path}: {self.old.strip() or '(nothing)'} -> {self.new.strip()}"


@dataclass(frozen=True, slots=True)
class VenvBuild:
    """A new virtual environment in ``folder`` with ``requirement``, installed only from wheels in ``wheelhouse``.

    ``python`` is its interpreter; ``made`` is as in `PathChange`.
    """

    folder: str
    requirement: str
    wheelhouse: str
    python: str
    made: str | None = None

    def __str__(self) -> str:
        return f"build {self.folder}: {self.requirement} from {self.wheelhouse}"


@dataclass(frozen=True, slots=True)
class RuntimeCopy:
    """A copy of an unpacked runtime, the folder ``source``, in ``folder``; ``made`` is as in `PathChange`."""

    folder: str
    source: str
    made: str | None = None

    def __str__(self) -> str:
        return f"copy {self.source} to {self.folder}"


ReleaseFolder = VenvBuild | RuntimeCopy
Change = PathChange | Edit | ReleaseFolder
_KINDS: Mapping[str, type[Change]] = {"placed": PathChange, "edited": Edit, "built": VenvBuild, "copied": RuntimeCopy}


def added(path: str, text: str, lines: str) -> Edit:
    """Return the edit that adds lines at the end of a file with this text."""
    return Edit(path, "", lines if text.endswith("\n") or not text else f"\n{lines}")


def edited(change: Edit, text: str) -> str:
    """Return the text after the edit; unchanged if the edit no longer matches."""
    if change.old:
        return _swapped(text, change, change.new)
    is_made = any(not _is_comment(text, match) for match in re.finditer(re.escape(change.new), text))
    return text if is_made else text + change.new


def restored(change: Edit, text: str) -> str:
    """Return the text with the edit undone, even if other parts have changed."""
    if not change.old and change.new.startswith("\n") and not text.endswith(change.new):
        # Another program has added lines after ours.
        return text.replace(change.new, "\n")
    return _swapped(text, change, change.old)


def _swapped(text: str, change: Edit, wanted: str) -> str:
    """Return the text with both passages of an edit replaced by ``wanted``, except in comment lines.

    One passage can be part of the other, so a text that already has ``wanted`` is not changed.
    """
    passages = sorted(filter(None, (change.old, change.new)), key=len, reverse=True)
    either = re.compile("|".join(map(re.escape, passages)))
    return either.sub(lambda match: match[0] if _is_comment(text, match) else wanted, text)


def _is_comment(text: str, match: re.Match[str]) -> bool:
    """Return whether a passage is in a comment line of YAML, a unit or an environment file."""
    at = match.start() + len(match[0]) - len(match[0].lstrip())
    return text[text.rfind("\n", 0, at) + 1 :].lstrip(" \t")[:1] in ("#", ";")


def undone(change: Change) -> Change:
    """Return the change that undoes another one, to describe it."""
    if isinstance(change, PathChange):
        return PathChange(change.path, change.after, change.before)
    return Edit(change.path, change.new, change.old) if isinstance(change, Edit) else change


def undoing(change: Change) -> str:
    """Describe what undoing a change does."""
    if isinstance(change, ReleaseFolder):
        return f"remove {change.folder}"
    back = undone(change)
    if isinstance(back, Edit):
        return f"restore {back.path}: {back.old.strip() or '(nothing)'} -> {back.new.strip() or '(nothing)'}"
    if isinstance(back, PathChange) and back.after is not None:
        return f"restore {back.path} ({_shown(back.after)})"
    return str(back)


def merge(changes: tuple[Change, ...], later: Change) -> tuple[Change, ...]:
    """Add a later change; changes of one path become one, with the state before the first and after the last."""
    if later in changes:
        return changes
    for index, change in enumerate(changes):
        if isinstance(change, PathChange) and isinstance(later, PathChange) and change.path == later.path:
            whole = PathChange(later.path, change.before, later.after, change.made)
            return (*changes[:index], whole, *changes[index + 1 :])
    return (*changes, later)


def to_json(change: Change) -> dict[str, Any]:
    """Return a change as JSON values."""
    kind = next(name for name, type_ in _KINDS.items() if isinstance(change, type_))
    return {"kind": kind, **asdict(change)}


def from_json(document: Mapping[str, Any]) -> Change:
    """Return the change that `to_json` wrote; raise KeyError, TypeError or ValueError for other values."""
    fields = dict(document)
    kind = _KINDS[fields.pop("kind")]
    if kind is PathChange:
        fields |= {name: _state(fields[name]) for name in ("before", "after")}
    return kind(**fields)


def _state(value: Mapping[str, Any] | None) -> State:
    if value is None:
        return None
    return Link(**value) if "target" in value else File(**value)
