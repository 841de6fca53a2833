"""``systemctl`` and ``journalctl -u`` of a simulated host, as far as its process 1 supports them."""

import json
import socket
import sys
from pathlib import Path

SOCKET = Path("/run/systemd/private")


def main(words: list[str]) -> int:
    """Send a command to process 1; return its exit status."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as process_1:
        process_1.connect(str(SOCKET))
        process_1.sendall(json.dumps(words).encode() + b"\n")
        answer = json.loads(b"".join(iter(lambda: process_1.recv(4096), b"")))
    if answer["said"]:
        print(answer["said"], file=sys.stderr if answer["status"] in (1, 5) else sys.stdout)
    return int(answer["status"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
