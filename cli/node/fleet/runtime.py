"""The runtime in the image, and its copy on the host, which `mooring-node install` makes the current one."""

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from cli.node.errors import NodeError
from cli.node.look import below
from mooring.files import sync_folder

MANIFEST = "RELEASE.json"
_PART = ".part"


@dataclass(frozen=True, slots=True)
class Runtime:
    """The unpacked runtime below ``folder``; ``name`` is that of its folder on a host."""

    folder: Path
    name: str

    @classmethod
    def at(cls, folder: Path) -> "Runtime":
        """Return the runtime; raise NodeError if there is none."""
        path = folder / MANIFEST
        try:
            name = json.loads(path.read_text(encoding="utf-8"))["name"]
        except (OSError, ValueError, KeyError, TypeError) as wrong:
            raise NodeError(f"runtime {str(path)!r} cannot be read: {wrong!r}") from wrong
        if not isinstance(name, str) or PurePosixPath(name).name != name:
            raise NodeError(f"runtime {str(path)!r}: 'name' {name!r} is not a folder's name")
        return cls(folder, name)

    def copy_to(self, root: Path, home: str) -> Path:
        """Copy the runtime into ``home`` on the host, if it is not there; return its path on the host. Raise OSError.

        The folder is complete or absent: it is renamed into place after its files are on the disk.
        """
        target, own = below(root, f"{home}/{self.name}"), Path(home, self.name)
        if target.exists():
            return own
        target.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        part = target.with_name(f"{self.name}{_PART}")
        shutil.rmtree(part, ignore_errors=True)
        try:
            shutil.copytree(self.folder, part, symlinks=True)
        except shutil.Error as failed:
            _, _, why = failed.args[0][0]
            shutil.rmtree(part, ignore_errors=True)
            raise OSError(f"{own}: {why}") from failed
        # One call writes what every file of this copy still has in memory.
        os.sync()
        part.rename(target)
        sync_folder(target.parent)
        return own


def remove_copy(root: Path, home: str) -> None:
    """Remove what a removal leaves in ``home``: the runtime that it ran from."""
    shutil.rmtree(below(root, home), ignore_errors=True)
