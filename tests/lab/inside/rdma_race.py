"""Move an RDMA device between two namespaces and rename it at the same time; print the errors of the renames.

rdma_race.py NETNS SECONDS
"""

import errno
import os
import sys
import threading
import time

from cni.kernel import netns, rdma


def main(path: str, seconds: float) -> None:
    host = f"/proc/{os.getpid()}/ns/net"
    _, index = max(rdma.devices().items(), key=lambda each: each[1])
    deadline = time.monotonic() + seconds
    moves = 0

    def move() -> None:
        nonlocal moves
        while time.monotonic() < deadline:
            rdma.move(index, path)
            netns.run_in(path, lambda: rdma.move(index, host))
            moves += 2

    errors: set[str] = set()
    mover = threading.Thread(target=move)
    mover.start()
    renames = 0
    while mover.is_alive():
        renames += 1
        try:
            rdma.rename(index, f"race{renames % 2}")
        except OSError as refused:
            errors.add(errno.errorcode.get(refused.errno or 0, "?"))
    print("raced" if moves > 10 and renames > 10 else f"{moves} moves, {renames} renames")
    print(*sorted(errors))


main(sys.argv[1], float(sys.argv[2]))
