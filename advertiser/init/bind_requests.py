"""Which PFs' drivers were bound: udev leaves a folder for each below ``<run>/init/bound``.

The kernel reports a driver that has taken a device by a uevent `bind` (driver_bound in drivers/base/dd.c, Linux 6.12).
A folder stays until `init` takes it, before it looks at the host. So a bind that comes while `init` runs is not lost:
mooring-init.path starts `init` again as long as the folder is not empty.
"""

import shutil
from dataclasses import dataclass
from pathlib import Path

from mooring.records.run_folder import BOUND


@dataclass(frozen=True, slots=True)
class BindRequests:
    """The requests below the run folder."""

    run: Path

    def take(self) -> list[str]:
        """Remove whatever lies there; return the names, which are the PFs' PCI addresses."""
        taken = self._paths()
        for path in taken:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
        return [path.name for path in taken]

    def pending(self) -> bool:
        return bool(self._paths())

    def _paths(self) -> list[Path]:
        folder = self.run / BOUND
        return sorted(folder.iterdir()) if folder.is_dir() else []
