"""mooring-cni: a CNI call when CNI_COMMAND is set, else one of the commands ``serve`` and ``show``."""

import sys
from collections.abc import Callable, Sequence

from cni.netlink import RtnetlinkVfPort, VfPort


def main(argv: Sequence[str] | None = None, port: Callable[[], VfPort] = RtnetlinkVfPort) -> int:
    """Return the exit status; ``port`` makes the port through which the PFs are told about their VFs."""
    raise NotImplementedError


if __name__ == "__main__":
    sys.exit(main())
