"""The runtime in the image, run on the host: `mooring-node install` copies it from there.

No copy is needed for that, and no shell: the host shares its process ids with the pod, so it reaches the image's files
at ``/proc/<pid>/root`` (proc_pid_root(5)), and the runtime's own loader starts its interpreter.
"""

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cli.node.errors import NodeError
from mooring.parsing import decode

RELEASE = "RELEASE.json"
_DIGEST_CHARS = 12


@dataclass(frozen=True, slots=True)
class Runtime:
    """The unpacked runtime below ``folder``; ``release`` is its name on a host, ``loader`` a path in it."""

    folder: Path
    release: str
    loader: str

    @classmethod
    def at(cls, folder: Path) -> "Runtime":
        """Return the runtime; raise NodeError if there is none."""
        path = folder / RELEASE
        try:
            text = path.read_bytes()
            version = str(decode(text)["version"])
            (loader,) = (folder / "lib").glob("ld-linux-*.so.*")
        except (OSError, ValueError, KeyError, TypeError) as wrong:
            raise NodeError(f"runtime {str(path)!r} cannot be read: {wrong!r}") from wrong
        digest = hashlib.sha256(text).hexdigest()[:_DIGEST_CHARS]
        return cls(folder, f"{version}-{digest}", f"lib/{loader.name}")

    def mooring_node(self, words: Sequence[str]) -> Sequence[str]:
        """Return the command that runs the image's `mooring-node` on the host."""
        top = f"/proc/{os.getpid()}/root{self.folder.absolute()}"
        python = f"{top}/python/bin/python3"
        options = ("--inhibit-cache", "--library-path", f"{top}/lib", "--argv0", python)
        return (f"{top}/{self.loader}", *options, f"{python}.11", "-I", "-m", "cli.node", *words)
