"""Where a simulated host differs from a real one: its kernel's RTNETLINK has no SR-IOV.

Python imports this module at its start on such a host: by PYTHONPATH, or from a runtime of Mooring's, in which the host
puts a link to it. When a program imports `mooring.nic.vf_settings`,
the settings of VFs become the simulated PFs' table, as `devcluster.hosts.cni` passes it by argument when Mooring is
started from the repository. Nothing else is changed, and a program that moves no VFs is not affected.
"""

import importlib.util
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

TABLE = Path("/devcluster/nic/vftable.json")
SITE = "/devcluster/site"
PORT = "mooring.nic.vf_settings"


class SimulatedVfSettings:
    """Finds `mooring.nic.vf_settings` as usual, and installs the simulated settings in it once it is executed."""

    @classmethod
    def find_spec(
        cls, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != PORT:
            return None
        sys.meta_path.remove(cls)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def execute_and_replace(module: ModuleType) -> None:
            execute(module)
            if SITE not in sys.path:
                sys.path.append(SITE)
            from devcluster.hosts.vftable import VfTable

            vars(module)["RtnetlinkVfSettings"] = lambda: VfTable(TABLE)

        vars(spec.loader)["exec_module"] = execute_and_replace
        return spec


sys.meta_path.insert(0, SimulatedVfSettings)
