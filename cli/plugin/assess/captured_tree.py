"""A captured sysfs tree in memory, as paths that discovery can read: none of them reaches the machine's files.

Links are followed within the tree only: what leads above its root stays at the root.
"""

import errno
import io
import os
from collections.abc import Generator, Sequence
from pathlib import PosixPath
from typing import IO, Any, ClassVar, NamedTuple

# As the kernel (MAXSYMLINKS in include/linux/namei.h).
_MOST_LINKS = 40


class Link(NamedTuple):
    """A symbolic link."""

    target: str


# A folder has its entries by name; a file is its content.
Folder = dict[str, Any]
Entry = Folder | bytes | Link


def add(root: Folder, parts: Sequence[str], entry: bytes | Link | None) -> bool:
    """Add an entry, a folder if it is None, and the folders above it; False if something else is in the way."""
    *above, name = parts
    for part in above:
        found = root.setdefault(part, {})
        if not isinstance(found, dict):
            return False
        root = found
    if entry is None:
        return isinstance(root.setdefault(name, {}), dict)
    if name in root:
        return False
    root[name] = entry
    return True


def tree_at(root: Folder) -> "TreePath":
    """Return the path of a tree's root."""
    kind = type("CapturedPath", (TreePath,), {"root_folder": root})
    path: TreePath = kind("/")
    return path


class TreePath(PosixPath):
    """A path of one tree, which is an attribute of its class: paths that are derived from it have the same class."""

    root_folder: ClassVar[Folder] = {}

    def exists(self, **_: Any) -> bool:
        try:
            self._find()
        except OSError:
            return False
        return True

    def open(self, *_: Any, **__: Any) -> IO[Any]:  # type: ignore[override]
        """Open for reading bytes, as discovery does."""
        entry, _real = self._find()
        if isinstance(entry, dict):
            raise _error(errno.EISDIR, self)
        return io.BytesIO(entry)

    def read_text(self, encoding: str | None = None, errors: str | None = None, *_: Any) -> str:
        content: bytes = self.open().read()
        return content.decode(encoding or "utf-8", errors or "strict")

    def iterdir(self) -> Generator[Any, None, None]:
        entry, _real = self._find()
        if not isinstance(entry, dict):
            raise _error(errno.ENOTDIR, self)
        yield from [self / name for name in entry]

    def readlink(self) -> Any:
        entry, _real = self._find(follow=False)
        if not isinstance(entry, Link):
            raise _error(errno.EINVAL, self)
        return type(self)(entry.target)

    def resolve(self, strict: bool = False) -> Any:
        return type(self)("/", *self._find()[1])

    def _find(self, *, follow: bool = True) -> tuple[Any, list[str]]:
        """Return an entry and its real path; raise OSError."""
        todo, real, links = list(reversed(self.parts[1:])), list[str](), 0
        entry: Any = self.root_folder
        stack: list[Any] = []
        while todo:
            part = todo.pop()
            if part == "..":
                entry = stack.pop() if stack else entry
                real = real[:-1]
                continue
            if not isinstance(entry, dict):
                raise _error(errno.ENOTDIR, self)
            if part not in entry:
                raise _error(errno.ENOENT, self)
            found = entry[part]
            if isinstance(found, Link) and (todo or follow):
                links += 1
                if links > _MOST_LINKS:
                    raise _error(errno.ELOOP, self)
                if found.target.startswith("/"):
                    entry, stack, real = self.root_folder, [], []
                todo += reversed([each for each in found.target.split("/") if each not in ("", ".")])
                continue
            stack.append(entry)
            real.append(part)
            entry = found
        return entry, real


def _error(number: int, path: PosixPath) -> OSError:
    return OSError(number, os.strerror(number), str(path))
