"""Large configurations are read one at a time: a tenant may write one for each of his pods, which come at once."""

import json
import threading
import time
from typing import Any

import pytest

from cni.server import dispatch
from cni.spec.conf import read_conf
from tests.cni.no_vf_settings import NoVfSettings

_AT_ONCE = 8
_TOOK_S = 0.05


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
    reading, most, held = 0, 0, threading.Event()
    guard = threading.Lock()

    def slow(call: Any, raw: Any, version: str) -> Any:
        nonlocal reading, most
        if raw["args"]:
            with guard:
                reading += 1
                most = max(most, reading)
            held.set()
            time.sleep(0.02)
            with guard:
                reading -= 1
        return read_conf(call, raw, version)

    monkeypatch.setattr(dispatch, "read_conf", slow)
    threads = [threading.Thread(target=_answer, args=({"x": "y" * 100_000},)) for _ in range(_AT_ONCE)]
    for thread in threads:
        thread.start()
    held.wait()
    assert json.loads(_answer({}))["cniVersion"] == "1.0.0"
    assert any(thread.is_alive() for thread in threads)
    for thread in threads:
        thread.join()
    assert most == 1


def test_other_calls_have_half_of_the_time_for_themselves() -> None:
    """The next large one is read when the last has been over for as long as it took."""
    large = dispatch.LargeOnes()
    with large.turn():
        time.sleep(_TOOK_S)
    ended_s = time.monotonic()
    with large.turn():
        assert time.monotonic() - ended_s > 0.9 * _TOOK_S
