"""Large configurations are read one at a time: a tenant may write one for each of his pods, which come at once."""

import json
import socket
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from cni.server import dispatch
from cni.server.socket_server import Server, serve_socket
from cni.spec.conf import read_conf
from cni.vf.ledger import LARGE, Ledger
from mooring.program.large_work import LargeWork
from mooring.records.pod_record import PodRecord, read_pod_record
from tests.cni.no_vf_settings import NoVfSettings
from tests.support.polling import wait_until

_AT_ONCE = 8
_TOOK_S = 0.05
_SIZE = 1 << 17


def _answer(args: object) -> str:
    environment = {
        "CNI_COMMAND": "ADD",
        "CNI_CONTAINERID": "c",
        "CNI_NETNS": "/proc/1/ns/net",
        "CNI_IFNAME": "net1",
    }
    conf = {"cniVersion": "1.0.0", "name": "n", "type": "mooring-cni", "args": args}
    return dispatch.answer(environment, json.dumps(conf).encode(), NoVfSettings).text


def test_large_configurations_are_read_one_at_a_time_and_no_small_one_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many pods have one."""
    reading, most, done, guard = 0, 0, 0, threading.Lock()
    held, small_is_answered = threading.Event(), threading.Event()

    def slow(call: Any, raw: Any, version: str) -> Any:
        nonlocal reading, most, done
        if raw["args"]:
            with guard:
                reading += 1
                most = max(most, reading)
            held.set()
            # Each of the others waits for its turn, or is here too.
            wait_until(lambda: reading + LARGE.queue_length >= _AT_ONCE - done)
            small_is_answered.wait(90)
            with guard:
                reading, done = reading - 1, done + 1
        return read_conf(call, raw, version)

    monkeypatch.setattr(dispatch, "read_conf", slow)
    threads = [threading.Thread(target=_answer, args=({"x": "y" * 100_000},)) for _ in range(_AT_ONCE)]
    for thread in threads:
        thread.start()
    held.wait()
    assert json.loads(_answer({}))["cniVersion"] == "1.0.0"
    assert (reading, done) == (1, 0)
    small_is_answered.set()
    for thread in threads:
        thread.join()
    assert most == 1


def test_other_calls_have_half_of_the_time_for_themselves() -> None:
    """The next large one is read when the last has been over for as long as it took."""
    large, began_s = LargeWork(), time.monotonic()
    with large.slot(_SIZE):
        time.sleep(_TOOK_S)
    with large.slot(_SIZE):
        assert time.monotonic() - began_s > 1.9 * _TOOK_S


def test_so_many_large_calls_are_taken_in_and_the_others_wait_in_their_sockets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What 110 pods send at once is not in the server's memory all at once; small calls pass them."""
    answered, go_on = list[int](), threading.Event()

    def answer_call(_server: Server, caller: socket.socket, _environment: object, stdin: bytes) -> None:
        answered.append(len(stdin))
        if len(stdin) > 1:
            go_on.wait(90)
        caller.sendall(b"0{}")

    monkeypatch.setattr(Server, "answer_call", answer_call)
    path = tmp_path / "server.sock"

    def call(size: int) -> bytes:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.connect(str(path))
            client.sendall(b"CNI_COMMAND=ADD\0\0" + b"x" * size)
            client.shutdown(socket.SHUT_WR)
            return client.recv(100)

    with serve_socket(path, NoVfSettings, {}) as server:
        serves = threading.Thread(target=server.serve_forever, args=(0.01,))
        serves.start()
        clients = [threading.Thread(target=call, args=(100_000 + number,)) for number in range(7)]
        for client in clients:
            client.start()
        wait_until(lambda: len(answered) == 4)
        assert call(1) == b"0{}"
        assert sorted(answered)[0] == 1
        assert len(answered) == 5
        go_on.set()
        for client in clients:
            client.join()
        server.shutdown()
        serves.join()
    assert sorted(answered) == [1, *range(100_000, 100_007)]


def test_the_smallest_is_read_first() -> None:
    """A pod whose annotations are just large does not wait for a hundred that are larger."""
    large, done = LargeWork(), list[int]()

    def read(size: int) -> None:
        with large.slot(size):
            done.append(size)

    later = [_SIZE * factor for factor in (4, 3, 2, 1)]
    threads = [threading.Thread(target=read, args=(size,)) for size in later]
    with large.slot(_SIZE):
        for waiting, thread in enumerate(threads, 1):
            thread.start()
            wait_until(partial(_has, large, waiting))
    for thread in threads:
        thread.join()
    assert done == sorted(later)


def _has(large: LargeWork, waiting: int) -> bool:
    return large.queue_length == waiting


def test_large_records_are_read_one_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However small the calls are that need them."""
    reading, most, done, guard = 0, 0, 0, threading.Lock()

    def slow(text: str, name: str) -> PodRecord:
        nonlocal reading, most, done
        with guard:
            reading += 1
            most = max(most, reading)
        wait_until(lambda: reading + LARGE.queue_length >= _AT_ONCE - done)
        with guard:
            reading, done = reading - 1, done + 1
        return read_pod_record(text, name)

    assignment = {"v": 1, "uid": "u", "node": "n", "vfs": [], "ext": {"x": [[]] * 20_000}}
    (tmp_path / "pods").mkdir()
    (tmp_path / "pods/u.json").write_text(json.dumps({"v": 1, "pod": "a/b", "assignment": assignment}))
    monkeypatch.setattr("cni.vf.ledger.read_pod_record", slow)
    threads = [threading.Thread(target=Ledger(tmp_path).pod, args=("u",)) for _ in range(_AT_ONCE)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1
