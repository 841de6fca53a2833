"""The API server as those who watch a cluster see it."""

import socket
import struct
import threading

import pytest

from devcluster.api import Api

# At its close the kernel sends RST (socket(7), SO_LINGER).
RESET = struct.pack("ii", 1, 0)


@pytest.mark.parametrize(
    ("rest", "is_reset"), [(b"0\r\n\r\n", False), (b"", False), (b'ff\r\n{"type":', False), (b"", True)]
)
def test_a_watch_ends_with_its_stream_however_that_ends(rest: bytes, is_reset: bool) -> None:
    """In order, between two events, within one, and by a reset: what came whole is seen."""
    event = b'{"type":"ADDED"}\n'

    def answer() -> None:
        with listener.accept()[0] as watcher:
            watcher.recv(4096)
            watcher.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            watcher.sendall(b"%x\r\n%s\r\n" % (len(event), event) + rest)
            is_seen.wait(90)
            if is_reset:
                watcher.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)

    is_seen = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = threading.Thread(target=answer)
        server.start()
        events = Api(f"http://127.0.0.1:{listener.getsockname()[1]}").watch("/api/v1/pods")
        assert next(events) == {"type": "ADDED"}
        is_seen.set()
        assert list(events) == []
        server.join()
