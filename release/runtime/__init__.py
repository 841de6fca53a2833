"""The node runtime: Debian's CPython with its C library, the wheels of the programs, and Mooring, in one folder.

It needs nothing of the host but a kernel and /bin/sh, and building it runs no code of its architecture.
"""

from release.runtime.archive import node_runtime
from release.runtime.debian import ARCHITECTURES
from release.runtime.tree import NODE_EXTRAS, NODE_PROGRAMS, build

__all__ = ["ARCHITECTURES", "NODE_EXTRAS", "NODE_PROGRAMS", "build", "node_runtime"]
