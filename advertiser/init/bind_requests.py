"""Read which PFs had their driver bound: udev makes a folder for each below ``<run>/init/bound``.

The kernel sends a uevent `bind` when a driver has bound a device (driver_bound in drivers/base/dd.c, Linux 6.12).
`init` removes the folders before it reads the host. So no bind is lost: if one comes while `init` runs,
mooring-init.path starts `init` again, because ``bound`` is not empty.
"""

import shutil
from dataclasses import dataclass
from pathlib import Path

from mooring.records.run_folder import BOUND_PFS


@dataclass(frozen=True, slots=True)
class BindRequests:
    """The folders that udev has made below the run folder."""

    run: Path

    def take(self) -> list[str]:
        """Remove all entries and return their names: the PFs' PCI addresses."""
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
        folder = self.run / BOUND_PFS
        return sorted(folder.iterdir()) if folder.is_dir() else []
