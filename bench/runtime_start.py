"""Start the executable that CNI calls, by the Python of a node runtime and by this one, in turns.

    python -m bench.runtime_start FOLDER [--rounds 40]

FOLDER is an unpacked runtime (mooring-<version>-<digest>/). Prints the median time and CPU of a start.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import median

from cli.node.runtime import interpreter
from cni.forwarder import render


def main() -> int:
    """Run the benchmark; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench.runtime_start", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rounds", type=int, default=40)
    given = parser.parse_args()
    own = (os.path.realpath(sys.executable),)
    pythons = {"runtime": interpreter(str(given.folder.absolute())), "this Python": own}
    with tempfile.TemporaryDirectory(prefix="mooring-bench-") as folder:
        programs = {name: Path(folder, str(number)) for number, name in enumerate(pythons)}
        for name, program in programs.items():
            program.write_text(render("/nowhere", ["/bin/false"], pythons[name]))
            program.chmod(0o755)
        _measure(programs, given.rounds)
    return 0


def _measure(programs: Mapping[str, Path], rounds: int) -> None:
    took: dict[str, list[tuple[float, float]]] = {name: [] for name in programs}
    for _ in range(rounds):
        for name, program in programs.items():
            took[name].append(_start(str(program)))
    for name, starts in took.items():
        wall, cpu = (median(each[index] for each in starts) * 1e3 for index in (0, 1))
        print(f"{name:12} {wall:6.1f} ms, CPU {cpu:5.1f} ms")


def _start(program: str) -> tuple[float, float]:
    """Return the time and the CPU seconds of a call that does nothing."""
    quiet = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
    begun = time.perf_counter()
    child = os.posix_spawn(program, [program, "--version"], {"PATH": "/usr/bin:/bin"}, file_actions=quiet)
    _, status, used = os.wait4(child, 0)
    assert status == 0, f"{program} ended with {status}"
    return time.perf_counter() - begun, used.ru_utime + used.ru_stime


if __name__ == "__main__":
    sys.exit(main())
