"""Run the benchmarks of what a scheduler does beside choosing a node, for pods that use it and pods that do not.

    python -m bench.features [--nodes 5000]

Exit status 1 if one of them misses a goal or fails. Each of them can be run by itself, with more options.
"""

import argparse
import subprocess
import sys

_PARTS = ("overhead", "volumes", "preemption", "constraints", "extender")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--nodes", type=int, default=5000, help="nodes (default 5000)")
    options = parser.parse_args()
    missed = [part for part in _PARTS if not _run(part, options.nodes)]
    print(f"\nmissed or failed: {', '.join(missed) or 'none'}")
    return 1 if missed else 0


def _run(part: str, nodes: int) -> bool:
    print(f"\n== {part}", flush=True)
    return subprocess.run([sys.executable, "-m", f"bench.{part}", f"--nodes={nodes}"], check=False).returncode == 0


if __name__ == "__main__":
    sys.exit(main())
