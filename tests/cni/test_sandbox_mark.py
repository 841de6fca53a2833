"""ADD belongs to a call that the CRI shim forwards: the marks of a shim, on a simulated host."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mooring.records.sandbox_marks import mark_call, promise_marks

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(not Path("/usr/lib/cni/host-local").exists(), reason="containernetworking-plugins is missing"),
]
UID = "u1"
FIRST = {"pf": "enp4s0f0", "vf": 1, "pci": "0000:04:00.3", "network": "rail0"}
SECOND = {"pf": "enp4s0f1", "vf": 0, "pci": "0000:04:00.6", "network": "rail1"}


@pytest.fixture(autouse=True)
def shim(host: Any) -> None:
    """A shim has started: it marks its calls."""
    promise_marks(host.layout.state, host.layout.run, "1")


def test_a_record_alone_satisfies_no_add(host: Any) -> None:
    """Refused before anything is changed, whether the server does the work or the executable itself; DEL is not."""
    host.record(FIRST, SECOND)
    before = host.everything()
    answer = host.call("ADD")
    assert (answer["status"], answer["code"]) == (1, 100)
    assert answer["msg"] == "the CRI shim has no RunPodSandbox call in progress for pod 'ns/u1': was it bypassed?"
    with host.served():
        assert host.call("ADD")["code"] == 100
    assert host.everything() == before
    assert host.call("DEL") == {"status": 0}


def test_every_network_of_a_marked_sandbox_is_attached_and_no_other_sandbox(host: Any) -> None:
    """Multus makes an ADD for each: one container id, other interface names. The pod's next sandbox has its own."""
    host.record(FIRST, SECOND)
    delegates = (("rail0", "net1"), ("rail1", "net2"))
    for container in ("c1", "c2"):
        with mark_call(host.layout.run, UID):
            for network, ifname in delegates:
                conf = host.conf(network=network, prevResult=None)
                assert host.call("ADD", conf, container=container, ifname=ifname)["status"] == 0
            refused = host.call("ADD", host.conf(network="rail0"), container="stranger", ifname="net1")
            assert (refused["code"], refused["msg"]) == (
                100,
                "the CRI shim is creating another sandbox of pod 'ns/u1', not this one",
            )
            assert {entry["container"] for entry in host.ledger().values()} == {container}
        for network, ifname in delegates:
            conf = host.conf(network=network)
            assert host.call("DEL", conf, container=container, ifname=ifname) == {"status": 0}
    assert host.ledger() == {}


def test_an_add_that_failed_may_come_again_while_its_call_lasts(host: Any) -> None:
    """The mark keeps the container id, and the same sandbox is attached once the VF is free."""
    host.record(FIRST, uid="other")
    with mark_call(host.layout.run, "other"):
        assert host.call("ADD", uid="other", container="c0")["status"] == 0
    host.record(FIRST)
    with mark_call(host.layout.run, UID):
        assert host.call("ADD", host.conf(holdTimeoutSeconds=0))["code"] == 11
        assert host.call("DEL", uid="other", container="c0") == {"status": 0}
        assert host.call("ADD")["status"] == 0
    assert host.call("DEL") == {"status": 0}


def test_an_add_after_its_shim_was_killed_is_to_come_again(host: Any) -> None:
    """Code 11: the kubelet repeats the whole call. That the same sandbox claimed the mark before does not help."""
    host.record(FIRST)
    program = (
        "import sys, time; from pathlib import Path; from mooring.records.sandbox_marks import mark_call\n"
        "with mark_call(Path(sys.argv[1]), 'u1'): print('marked', flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", program, str(host.layout.run)], stdout=subprocess.PIPE) as killed:
        assert killed.stdout is not None
        assert killed.stdout.readline() == b"marked\n"
        assert host.call("ADD")["status"] == 0
        assert host.call("DEL") == {"status": 0}
        killed.kill()
    answer = host.call("ADD")
    assert (answer["code"], answer["msg"]) == (
        11,
        "the CRI shim stopped while it was creating the sandbox of pod 'ns/u1'",
    )
    assert host.ledger() == {}


def test_an_older_shim_is_served_as_before(host: Any) -> None:
    """A downgrade: it writes its version, and no marks."""
    host.record(FIRST)
    written = host.layout.run / "version/mooring-cri-shim"
    written.unlink()
    assert host.call("ADD")["code"] == 100
    written.write_text("0")
    assert host.call("ADD")["status"] == 0
    assert host.call("DEL") == {"status": 0}
