"""A decision imports nothing: an import takes longer than a step may."""

import subprocess
import sys

_SCRIPT = """
import sys
import numpy as np
import scheduler.state.machine
before = set(sys.modules)
numbers = np.arange(3)
np.unique(numbers), np.unique(numbers, return_inverse=True), np.unique(numbers.reshape(1, 3), axis=0)
np.isin(numbers, numbers), np.bincount(numbers), np.lexsort((numbers, numbers)), np.delete(numbers, 0)
np.searchsorted(numbers, 1), np.repeat(numbers, 2), np.cumsum(numbers), np.roll(numbers, 1)
print(*sorted(set(sys.modules) - before))
"""


def test_what_numpy_imports_at_a_first_call_is_imported_at_the_start() -> None:
    """Its functions that decisions call: `np.unique` imports numpy.ma, which took 80 ms of a first decision's step."""
    ended = subprocess.run([sys.executable, "-c", _SCRIPT], capture_output=True, text=True, check=True, timeout=60)
    assert ended.stdout.strip() == ""
