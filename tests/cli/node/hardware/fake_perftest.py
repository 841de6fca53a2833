"""A stand-in for ib_write_bw: its options, its exchange over TCP, its output; it sends nothing.

It answers at a rate in Mb/s that the file $FAKE_RATE has, or $FAKE_RATE.DEVICE for one device, and takes a twentieth of
the time that is asked for. As perftest does on a busy host, it finds no clock of the CPU, and reports rates of 0.
"""

import os
import socket
import sys
import time
from itertools import pairwise
from pathlib import Path

SCALE = 20
# What the two sides tell each other: longer than one segment.
HELLO = b"x" * 5000


def received(connection: socket.socket) -> bytes:
    data = b""
    while len(data) < len(HELLO) and (piece := connection.recv(4096)):
        data += piece
    return data


def rate(device: str) -> float:
    path = Path(os.environ["FAKE_RATE"])
    own = path.with_name(f"{path.name}.{device}")
    text = (own if own.exists() else path).read_text()
    if text == "broken":
        print("Completion with error at client")
        print("Failed to complete run_iter_bw function successfully")
        sys.exit(1)
    return float(text)


def report(size: int, messages: float) -> None:
    print(f" {size}      {int(messages)}            0.000000           0.000000           0.000000", flush=True)


def main(words: list[str]) -> None:
    value = dict(pairwise(words))
    device, port, size = value["-d"], int(value["-p"]), int(value["-s"])
    if words[-2] == "-p":
        with socket.create_server(("127.0.0.1", port)) as listener:
            connection, _ = listener.accept()
        with connection:
            connection.sendall(HELLO)
            # The client's options come with its hello; then the client ends.
            theirs = received(connection)
            Path(os.environ["FAKE_RATE"] + f".server-{device}").write_text(f"{' '.join(words)}\n{len(theirs)}")
            connection.recv(1)
        return
    with socket.create_connection((words[-1], port)) as connection:
        connection.sendall(HELLO)
        assert received(connection) == HELLO
        print(" #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]", flush=True)
        if "-n" in value:
            rate(device)
            report(size, int(value["-n"]) * int(value["-q"]))
            return
        while "--run_infinitely" in words:
            began = time.monotonic()
            time.sleep(1 / SCALE)
            report(size, rate(device) * 1e6 / 8 * (time.monotonic() - began) / size)
        measured = int(value["-D"]) - 2 * int(value["-f"])
        time.sleep(int(value["-D"]) / SCALE)
        report(size, rate(device) * 1e6 / 8 * measured / size)


main(sys.argv[1:])
