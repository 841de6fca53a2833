"""Connections of another process to one socket are closed, and no others of it; this process is the runtime."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from cri_shim.bypass.kubelet_connections import close_connections, open_among

# Connects to each socket named, says so, and then says of each in turn when it has ended.
CALLER = """\
import socket, sys
open("/proc/self/comm", "w").write(sys.argv[1])
callers = [socket.socket(socket.AF_UNIX) for _ in sys.argv[2:]]
for caller, path in zip(callers, sys.argv[2:]):
    caller.connect(path)
print("connected", flush=True)
for caller in callers:
    caller.recv(1)
    caller.close()
    print("ended", flush=True)
"""


@pytest.fixture
def listeners(tmp_path: Path) -> Iterator[tuple[Path, Path]]:
    """The runtime's socket, and another one."""
    with ExitStack() as stack:
        paths = tmp_path / "runtime.sock", tmp_path / "other.sock"
        for path in paths:
            listener = stack.enter_context(socket.socket(socket.AF_UNIX))
            listener.bind(str(path))
            listener.listen()
        yield paths


@pytest.mark.parametrize("name", ["kubelet", "crictl"])
def test_the_kubelets_connections_to_the_runtime_are_closed_and_no_others(
    tmp_path: Path, listeners: tuple[Path, Path], name: str
) -> None:
    """However the path leads to the socket."""
    runtime, other = listeners
    link = tmp_path / "cri.sock"
    link.symlink_to(runtime)
    command = [sys.executable, "-c", CALLER, name, str(link), str(other)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as caller:
        assert caller.stdout is not None
        assert caller.stdout.readline() == "connected\n"
        closed = close_connections(link)
        assert [each.pid for each in closed] == ([caller.pid] if name == "kubelet" else [])
        if closed:
            assert caller.stdout.readline() == "ended\n"
            assert open_among(closed) == frozenset()
        assert close_connections(link) == frozenset()
        os.kill(caller.pid, 0)
        caller.kill()


def test_processes_that_end_meanwhile_are_passed_over(tmp_path: Path) -> None:
    """Their folders are there and their files are gone."""
    (tmp_path / "proc/4194304").mkdir(parents=True)
    assert close_connections(tmp_path / "runtime.sock", tmp_path / "proc") == frozenset()
    (tmp_path / "proc/4194304/cgroup").write_text("0::/system.slice/kubelet.service\n")
    assert close_connections(tmp_path / "runtime.sock", tmp_path / "proc") == frozenset()
