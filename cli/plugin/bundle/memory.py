"""Bound the memory of a command that reads a stranger's file: its maker decides by how much JSON grows when decoded."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager

from cli.plugin.bundle.layout import BundleError

# Writable memory of the process, as Linux counts it for RLIMIT_DATA (setrlimit(2)).
MOST_MEMORY_BYTES = 4 << 30


@contextmanager
def limited_memory(bundle: str) -> Iterator[None]:
    """Let the process have no more memory than this; raise BundleError when it needs more, or nests too deeply."""
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    most = MOST_MEMORY_BYTES if hard == resource.RLIM_INFINITY else min(MOST_MEMORY_BYTES, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (most, hard))
    try:
        yield
    except MemoryError:
        raise BundleError(f"bundle {bundle!r}: more than {MOST_MEMORY_BYTES >> 30} GiB of memory is needed") from None
    except RecursionError:
        raise BundleError(f"bundle {bundle!r}: nested too deeply") from None
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
