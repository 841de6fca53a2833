"""The warm server and the executable before it: real processes, really killed."""

import json
import os
import select
import signal
import socket
import stat
import statistics
import subprocess
import sys
import threading
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from cni.forwarder import render
from cni.kernel.inotify import has_hung_up, watch_folders
from cni.server.socket_server import ContainerLocks, serve_socket
from mooring.nic.vf_settings import RtnetlinkVfSettings
from tests.support.polling import reaches, wait_until
from tests.support.simulated_nics import MLX5, ON_EACH, ON_MLX5, Nic

FIRST = MLX5.first
# Longer than any test may take: only what is waited for ends the wait.
_FOREVER_S = 3600.0
# The longest time that a configuration may set.
_HOLD_S = 60
on_a_host = [
    pytest.mark.root,
    pytest.mark.skipif(not Path("/usr/lib/cni/host-local").exists(), reason="containernetworking-plugins is missing"),
]


def test_a_containers_calls_come_one_at_a_time_and_leave_no_trace() -> None:
    """Calls of one container wait for each other, those of two do not; what is not called for is forgotten."""
    turns = ContainerLocks()
    order: list[str] = []
    entered = threading.Event()

    def second() -> None:
        entered.set()
        with turns.of("c1"):
            order.append("second")

    with turns.of("c1"):
        thread = threading.Thread(target=second)
        thread.start()
        entered.wait()
        with turns.of("c2"), turns.of(""), turns.of(""):
            order.append("first")
        assert len(turns) == 1
    thread.join()
    assert order == ["first", "second"]
    assert len(turns) == 0


def test_a_turn_that_fails_is_given_up_too() -> None:
    """An exception in a call does not keep its container."""
    turns = ContainerLocks()
    with pytest.raises(KeyError), turns.of("c1"):
        raise KeyError
    assert len(turns) == 0


def test_a_watched_folder_wakes_the_one_who_waits(tmp_path: Path) -> None:
    """A record put in place by rename, a record removed; a folder that does not exist wakes no waiter."""
    (tmp_path / "record").touch()
    with watch_folders(tmp_path, tmp_path / "nonexistent") as watch:
        (tmp_path / "record").rename(tmp_path / "renamed")
        assert watch.wait(_FOREVER_S)
        (tmp_path / "renamed").unlink()
        assert watch.wait(_FOREVER_S)
        assert watch.wait(0)


def test_a_caller_that_sends_no_more_still_waits_and_one_that_is_gone_does_not(tmp_path: Path) -> None:
    """A half-closed socket is a caller that waits; a closed one wakes the worker of its call."""
    ours, theirs = socket.socketpair(socket.AF_UNIX)
    with ours, theirs, watch_folders(tmp_path) as watch:
        theirs.shutdown(socket.SHUT_WR)
        assert not has_hung_up(ours.fileno())
        assert watch.wait(0, ours.fileno())
        theirs.close()
        assert has_hung_up(ours.fileno())
        assert not watch.wait(_FOREVER_S, ours.fileno())


@pytest.mark.root
class TestServed:
    """With a simulated host."""

    pytestmark = on_a_host

    @ON_EACH
    def test_calls_go_through_the_server(self, host: Any, nic: Nic) -> None:
        """The executable hands the call over: the server logs it, and the answer is the same as without one."""
        host.record(nic.first, nic.second)
        with host.served():
            result = host.call("ADD")
            assert [each["name"] for each in result["interfaces"]] == ["eth0", "net1", "rdma7"]
            assert host.call("DEL") == {"status": 0}
        assert [line["event"] for line in host.log()].count("vf released") == 2

    @ON_MLX5
    def test_an_add_whose_caller_was_killed_is_undone_before_del_is_answered(self, host: Any) -> None:
        """Killed at moments from its start to after its end, until one was under way; DEL comes 0.03 s later."""
        before = host.everything()
        host.record(FIRST, MLX5.second)
        with host.served():
            took_s = duration_of_add_s(host)
            for share in (*(twentieth / 20 for twentieth in range(20)), 1.2, 1.6, 2.5):
                caller = host.begin("ADD")
                time.sleep(share * took_s)
                caller.send_signal(signal.SIGKILL)
                caller.wait()
                time.sleep(0.03)
                assert host.call("DEL") == {"status": 0}
                assert host.everything() == before, f"killed after {share} of {took_s} s"
            for _ in range(20):
                if any("caller disconnected" in line["event"] for line in host.log()):
                    break
                caller = host.begin("ADD")
                # From the first entry on its ADD is under way.
                wait_until(lambda: bool(list((host.layout.state / "vfs").glob("*.json"))))
                caller.send_signal(signal.SIGKILL)
                caller.wait()
                assert host.call("DEL") == {"status": 0}
                assert host.everything() == before
            else:
                pytest.fail("no caller was killed while its ADD was under way")

    @ON_EACH
    def test_an_add_whose_caller_was_killed_is_undone_without_a_del(self, host: Any, nic: Nic) -> None:
        """The caller may never fetch it: the server undoes an ADD whose answer was not received."""
        host.record(nic.first, nic.second)
        before = host.everything()
        with host.served():
            for _ in range(20):
                caller = host.begin("ADD")
                # From the first entry on its ADD is under way; it may end before the signal comes.
                wait_until(lambda: bool(list((host.layout.state / "vfs").glob("*.json"))))
                caller.send_signal(signal.SIGKILL)
                caller.wait()
                if was_undone(host):
                    break
                assert host.call("DEL") == {"status": 0}
            else:
                pytest.fail("no caller was killed while its ADD was under way")
            wait_until(lambda: host.everything() == before)

    @ON_EACH
    def test_a_vf_whose_namespace_died_without_a_del_is_given_back_by_the_server(self, host: Any, nic: Nic) -> None:
        """The reconciler finds it within its interval: all is as before, the ledger too."""
        before = host.everything()
        host.record(nic.first, nic.second)
        with host.served("--reconcile-s", "0.2"):
            assert host.call("ADD")["status"] == 0
            subprocess.run(("ip", "netns", "delete", host.pod), check=True)
            wait_until(lambda: host.everything() == before)
        subprocess.run(("ip", "netns", "add", host.pod), check=True)
        assert [line["event"] for line in host.log()].count("orphaned vf released") == 2

    @ON_MLX5
    def test_adds_that_nobody_waits_for_stop_waiting(self, host: Any, other_netns: str) -> None:
        """One ADD waits for a held VF, one for its turn, when both callers are killed: the DEL is answered at once."""
        host.record(FIRST)
        host.record(FIRST, uid="u2")
        theirs = {"uid": "u2", "container": "c2", "netns": other_netns}
        with host.served():
            assert host.call("ADD")["status"] == 0
            for _ in range(20):
                callers = [host.begin("ADD", host.conf(holdTimeoutSeconds=_HOLD_S), **theirs) for _ in range(2)]
                # Nothing shows from outside which of them waits for the VF, and which one for its turn in the server.
                with pytest.raises(subprocess.TimeoutExpired):
                    callers[0].wait(1)
                # The one in turn last: the other one must be gone when its own turn comes.
                for caller in reversed(callers):
                    caller.send_signal(signal.SIGKILL)
                    caller.wait()
                started = time.monotonic()
                assert host.call("DEL", **theirs) == {"status": 0}
                assert time.monotonic() - started < _HOLD_S - 10
                assert "net1" in host.in_pod()
                waited = any("the caller stopped waiting" in str(line.get("reason")) for line in host.log())
                if waited and any(line["event"] == "caller disconnected before its ADD started" for line in host.log()):
                    break
            else:
                pytest.fail("the second caller never waited for its turn when it was killed")
            assert host.call("DEL") == {"status": 0}

    @ON_MLX5
    def test_status_of_an_upgrade_is_that_of_a_node_with_its_network(self, host: Any) -> None:
        """Executable and server are of two versions for a moment, or the server ends with the call."""
        program = host.layout.cni_bin / "mooring-cni"
        text = program.read_text()
        conf = host.conf(cniVersion="1.1.0")
        with host.served():
            program.write_text(text.replace("MOORING_FORWARDER=", "MOORING_FORWARDER=9."))
            assert host.call("STATUS", conf) == {"status": 0}
            program.write_text(text)
        path = host.layout.run / "cni.sock"
        with socket.socket(socket.AF_UNIX) as ending:
            ending.bind(str(path))
            ending.listen()
            threading.Thread(target=lambda: ending.accept()[0].close(), daemon=True).start()
            assert host.call("STATUS", conf) == {"status": 0}
        path.unlink()

    @ON_MLX5
    def test_a_second_server_is_refused_and_says_nothing_of_itself(self, host: Any) -> None:
        """The first server is not taken over, and the version on record stays its own."""
        with host.served():
            assert host.call("ADD", host.conf(None))["status"] == 0
            said = host.layout.run / "version" / "mooring-cni"
            said.write_text("the first's")
            with pytest.raises(AssertionError, match="where 1 = wait"), host.served() as second:
                second.wait(90)
            assert said.read_text() == "the first's"
            assert host.call("ADD", host.conf(None))["status"] == 0

    @ON_MLX5
    def test_the_executable_starts_many_times_faster_than_the_program(self, host: Any) -> None:
        """Median of 5 VERSION calls each: the forwarder to a warm server against the program alone."""
        program = str(host.layout.cni_bin / "mooring-cni")
        with host.served():
            forwarded = median_ms(host, program)
        alone = median_ms(host, program)
        print(f"forwarder {forwarded:.1f} ms, one process {alone:.1f} ms")
        assert forwarded * 4 < alone


def was_undone(host: Any) -> bool:
    """Return whether the server had to undo an ADD whose caller was killed. It logs this soon, or never."""
    return reaches(
        lambda: any(line["event"] == "caller disconnected, its ADD is undone" for line in host.log()), limit_s=3
    )


def duration_of_add_s(host: Any) -> float:
    started = time.monotonic()
    assert host.call("ADD")["status"] == 0
    took_s = time.monotonic() - started
    assert host.call("DEL") == {"status": 0}
    return took_s


def median_ms(host: Any, program: str) -> float:
    environment = {"CNI_COMMAND": "VERSION", "PATH": os.environ["PATH"]}
    times = []
    for _ in range(5):
        started = time.monotonic()
        subprocess.run([program], input=b"{}", env=environment, capture_output=True, check=True)
        times.append((time.monotonic() - started) * 1000)
    return statistics.median(times)


def test_only_root_can_reach_the_socket(tmp_path: Path) -> None:
    """Its mode is 0600, in a folder that only root may enter."""
    path = tmp_path / "run/cni.sock"
    with serve_socket(path, RtnetlinkVfSettings, {}):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_standard_input_that_cannot_be_read_is_code_5() -> None:
    """Open for writing only: the runtime reads why on standard output."""
    environment = {"CNI_COMMAND": "DEL", "CNI_CONTAINERID": "a", "PATH": os.environ["PATH"]}
    unreadable = os.open("/dev/null", os.O_WRONLY)
    done = subprocess.run(
        [sys.executable, "-m", "cni"], env=environment, stdin=unreadable, capture_output=True, text=True, check=False
    )
    os.close(unreadable)
    assert done.returncode == 1
    assert '"code": 5' in done.stdout


def test_an_executable_without_a_server_and_without_its_program_says_try_again(tmp_path: Path) -> None:
    """During an upgrade a runtime reads no traceback."""
    executable = tmp_path / "mooring-cni"
    executable.write_text(render(str(tmp_path / "no.sock"), [str(tmp_path / "no-python")]))
    executable.chmod(0o755)
    done = subprocess.run(
        [executable], env={"CNI_COMMAND": "DEL"}, input="{}", capture_output=True, text=True, check=False
    )
    assert (done.returncode, json.loads(done.stdout)["code"], done.stderr) == (1, 11, "")


def test_an_executable_says_its_own_version_to_a_person(tmp_path: Path) -> None:
    """It waits for no standard input and asks no server, which may be of another version."""
    executable = tmp_path / "mooring-cni"
    executable.write_text(render(str(tmp_path / "no.sock"), ["/bin/false"]))
    executable.chmod(0o755)
    with subprocess.Popen([executable, "--version"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as asked:
        assert asked.stdout is not None
        assert asked.stdout.read() == f"mooring-cni {version('mooring')}\n"
        assert asked.wait() == 0


def test_the_server_is_the_nodes_own_whatever_a_configuration_names(tmp_path: Path) -> None:
    """Under Multus a tenant writes it: a socket of his own hears nothing, and the node's server gets all."""
    executable = tmp_path / "mooring-cni"
    executable.write_text(render(str(tmp_path / "own"), ["/bin/false"]))
    executable.chmod(0o755)
    text = json.dumps({"cniVersion": "1.0.0", "server": str(tmp_path / "tenants")})
    run = subprocess.Popen(
        [executable], env={"CNI_COMMAND": "ADD"}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with run as caller, socket.socket(socket.AF_UNIX) as own, socket.socket(socket.AF_UNIX) as tenants:
        for server, name in ((own, "own"), (tenants, "tenants")):
            server.bind(str(tmp_path / name))
            server.listen()
        assert caller.stdin is not None
        assert caller.stdout is not None
        caller.stdin.write(text)
        caller.stdin.close()
        called, _, _ = select.select([own, tenants], [], [], 90)
        assert called == [own]
        with own.accept()[0] as call:
            heard = b"".join(iter(lambda: call.recv(65536), b""))
            call.sendall(b"0{}")
        assert (caller.stdout.read(), caller.wait()) == ("{}", 0)
    assert heard.endswith(b"\0\0" + text.encode())


def test_without_a_server_the_program_itself_reads_the_configuration(tmp_path: Path) -> None:
    """The forwarder has read it already: it hands on a copy of any size."""
    executable = tmp_path / "mooring-cni"
    executable.write_text(render(str(tmp_path / "no.sock"), ["/bin/cat"]))
    executable.chmod(0o755)
    text = json.dumps({"name": "x" * 300_000})
    done = subprocess.run([executable], env={}, input=text, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, text, "")
