"""The runtime in the image, run on the host: `mooring-node install` copies it from there.

No copy is needed for that, and no shell: the host shares its process ids with the pod, so it reaches the image's files
at ``/proc/<pid>/root`` (proc_pid_root(5)), and the runtime's own loader starts its interpreter.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cli.node.errors import NodeError
from cli.node.runtime import RELEASE, folder_name, interpreter
from mooring.parsing import decode


@dataclass(frozen=True, slots=True)
class Runtime:
    """The unpacked runtime below ``folder``; ``release`` is its name on a host."""

    folder: Path
    release: str

    @classmethod
    def at(cls, folder: Path) -> "Runtime":
        """Return the runtime; raise NodeError if there is none."""
        path = folder / RELEASE
        try:
            text = path.read_bytes()
            version = str(decode(text)["version"])
        except (OSError, ValueError, KeyError, TypeError) as wrong:
            raise NodeError(f"runtime {str(path)!r} cannot be read: {wrong!r}") from wrong
        return cls(folder, folder_name(version, text).removeprefix("mooring-"))

    def mooring_node(self, words: Sequence[str]) -> Sequence[str]:
        """Return the command that runs the image's `mooring-node` on the host."""
        return (*interpreter(f"/proc/{os.getpid()}/root{self.folder.absolute()}"), "-I", "-m", "cli.node", *words)
