"""Run the real CNI program with the simulation's VF table in place of RTNETLINK: the one interface that it replaces.

    python -m devcluster.hosts.cni --vf-table FILE [serve ...]

What follows the table's path is mooring-cni's own command line; with nothing after it, it is one CNI call.
"""

import sys
from pathlib import Path

from cni.__main__ import main as mooring_cni
from devcluster.hosts.vftable import VfTable

_USAGE = 2


def main(arguments: list[str]) -> int:
    """Return mooring-cni's exit status."""
    if len(arguments) < 2 or arguments[0] != "--vf-table":
        sys.stderr.write("usage: python -m devcluster.hosts.cni --vf-table FILE [arguments of mooring-cni]\n")
        return _USAGE
    table = VfTable(Path(arguments[1]))
    return mooring_cni(arguments[2:], vf_settings=lambda: table)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
