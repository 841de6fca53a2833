"""The link that replaces the shim's socket during a bypass."""

import os
from pathlib import Path


class SocketLink:
    """A link at the shim's socket path that points to the runtime's socket."""

    def __init__(self, path: Path, runtime: Path) -> None:
        self._path = path
        self._runtime = runtime

    @property
    def is_placed(self) -> bool:
        """Return whether the path is a link, with any target: only a bypass creates one."""
        return self._path.is_symlink()

    def place(self) -> None:
        """Replace the path atomically with the link, whatever is there; raise OSError."""
        self._path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        temporary = self._path.with_name(f".{self._path.name}.{os.getpid()}.link")
        temporary.unlink(missing_ok=True)
        temporary.symlink_to(self._runtime)
        temporary.replace(self._path)

    def remove(self) -> None:
        """Remove the link; anything else at the path stays."""
        if self.is_placed:
            self._path.unlink(missing_ok=True)
