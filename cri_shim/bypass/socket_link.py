"""The link in the place of the shim's socket."""

import os
from pathlib import Path


class SocketLink:
    """The socket's path, and the runtime's socket to which a link there leads."""

    def __init__(self, path: Path, runtime: Path) -> None:
        self._path = path
        self._runtime = runtime

    @property
    def is_placed(self) -> bool:
        """Return whether a link is at the path, to whatever: only a bypass puts one there."""
        return self._path.is_symlink()

    def place(self) -> None:
        """Put the link at the path, whatever is there, at one moment; raise OSError."""
        self._path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        temporary = self._path.with_name(f".{self._path.name}.{os.getpid()}.link")
        temporary.unlink(missing_ok=True)
        temporary.symlink_to(self._runtime)
        temporary.replace(self._path)

    def remove(self) -> None:
        """Remove the link; what else is at the path stays."""
        if self.is_placed:
            self._path.unlink(missing_ok=True)
