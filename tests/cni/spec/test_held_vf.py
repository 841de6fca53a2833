"""An ADD whose VF another sandbox holds, as the program by itself handles it: how long it waits, and for what."""

import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from mooring.locks import hold
from tests.cni.spec.calls import FIRST
from tests.support.polling import wait_until
from tests.support.proc_files import watched_folders

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(not Path("/usr/lib/cni/host-local").exists(), reason="containernetworking-plugins is missing"),
]


def test_an_add_takes_a_held_vf_as_soon_as_it_is_given_back(host: Any, other_netns: str) -> None:
    """It waits for the ledger to change; its own time-out is longer than the test's."""
    host.record(FIRST)
    host.record(FIRST, uid="u2")
    assert host.call("ADD")["status"] == 0
    conf = host.conf(holdTimeoutSeconds=60)
    waiting = host.begin("ADD", conf, uid="u2", container="c2", netns=other_netns)
    # Of the ledger's folder and of the one of the holder's namespace: the VF was found held, and is waited for.
    wait_until(lambda: watched_folders(waiting.pid) == 2)
    assert waiting.poll() is None
    assert host.call("DEL") == {"status": 0}
    assert waiting.wait(45) == 0
    assert host.ledger()[FIRST["pci"]]["uid"] == "u2"
    assert host.call("DEL", uid="u2", container="c2", netns=other_netns) == {"status": 0}


def test_a_vf_that_is_being_given_back_is_waited_for_no_longer(host: Any) -> None:
    """The process that gives the VF back has its lock, and may need half a minute.

    Error 11 names the pod after the usual wait.
    """
    host.record(FIRST)
    assert host.call("ADD")["status"] == 0
    host.record(FIRST, uid="u2")
    with hold(host.layout.run, "0000:04:00.3", 0):
        began = time.monotonic()
        answer = host.call("ADD", host.conf(holdTimeoutSeconds=0.2), uid="u2", container="c2")
    assert (answer["code"], "held by pod 'ns/u1'" in answer["details"]) == (11, True), answer
    # A caller waits for the lock for 30 s, whatever holdTimeoutSeconds is.
    assert time.monotonic() - began < 28


def test_an_add_takes_a_held_vf_as_soon_as_its_sandbox_dies(host: Any, other_netns: str) -> None:
    """No DEL ever came: the namespace's end is noticed as well."""
    host.record(FIRST)
    host.record(FIRST, uid="u2")
    assert host.call("ADD")["status"] == 0
    waiting = host.begin("ADD", host.conf(holdTimeoutSeconds=60), uid="u2", container="c2", netns=other_netns)
    # Of the ledger's folder and of the one of the holder's namespace: the VF was found held, and is waited for.
    wait_until(lambda: watched_folders(waiting.pid) == 2)
    assert waiting.poll() is None
    subprocess.run(("ip", "netns", "delete", host.pod), check=True)
    assert waiting.wait(45) == 0
    assert host.call("DEL", uid="u2", container="c2", netns=other_netns) == {"status": 0}
    subprocess.run(("ip", "netns", "add", host.pod), check=True)
