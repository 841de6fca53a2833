"""DEL in every way in which it can come: whatever is missing, it restores what it can, or touches nothing."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.simulated_nics import ON_EACH, Nic

pytestmark = [
    pytest.mark.root,
    pytest.mark.usefixtures("server"),
    pytest.mark.skipif(not Path("/usr/lib/cni/host-local").exists(), reason="containernetworking-plugins is missing"),
]


@ON_EACH
@pytest.mark.parametrize("netns", ["", "/run/netns/mooring-no-such-netns", None])
@pytest.mark.parametrize("missing", [(), ("prevResult",), ("prevResult", "runtimeConfig", "ipam", "name")])
def test_it_needs_neither_namespace_nor_result(
    host: Any, nic: Nic, netns: str | None, missing: tuple[str, ...]
) -> None:
    """The ledger knows all; an empty or wrong CNI_NETNS while the namespace lives is not a hindrance."""
    before = host.everything()
    host.record(nic.first, nic.second)
    assert host.call("ADD")["status"] == 0
    conf = {name: value for name, value in host.conf().items() if name not in missing}
    for _ in range(2):
        assert host.call("DEL", conf, netns=netns) == {"status": 0}
        assert host.everything() == before


@ON_EACH
def test_a_spoilt_configuration_does_not_keep_a_pod(host: Any, nic: Nic) -> None:
    """ADD refuses a misspelt field; DEL, which may come after the mistake was made, needs no more than folders."""
    before = host.everything()
    host.record(nic.first)
    assert host.call("ADD")["status"] == 0
    spoilt = host.conf(holdTimeoutSecond=5, networks=7, prevResult="nonsense")
    assert host.call("ADD", spoilt, container="c2")["code"] == 7
    assert host.call("DEL", spoilt) == {"status": 0}
    assert host.everything() == before


@ON_EACH
def test_the_kernel_gave_vfs_back_under_names_that_are_not_theirs(host: Any, nic: Nic) -> None:
    """One comes back under its name in the pod, one under none, because the pod's name is another's on the host."""
    before = host.everything()
    host.record(nic.first, {**nic.second, "name": "enp4s0f0v3"})
    assert host.call("ADD")["status"] == 0
    subprocess.run(("ip", "netns", "delete", host.pod), check=True)
    assert host.call("DEL") == {"status": 0}
    subprocess.run(("ip", "netns", "add", host.pod), check=True)
    assert host.everything() == before


@ON_EACH
def test_a_del_for_a_pod_without_vfs_changes_nothing(host: Any, nic: Nic) -> None:
    """Nothing changes with or without a record, with or without the pod's namespace."""
    before = host.everything()
    assert host.call("DEL") == {"status": 0}
    host.record(nic.first)
    assert host.call("DEL") == {"status": 0}
    assert host.call("DEL", netns="") == {"status": 0}
    assert host.everything() == before


@ON_EACH
def test_days_later_the_vf_is_another_pods_and_stays_there(host: Any, nic: Nic, other_netns: str) -> None:
    """A finished pod's sandbox is removed last of all: by then the ledger names another pod."""
    host.record(nic.first)
    assert host.call("ADD")["status"] == 0
    subprocess.run(("ip", "netns", "delete", host.pod), check=True)
    subprocess.run(("ip", "netns", "add", host.pod), check=True)
    host.record(nic.first, uid="u2")
    assert host.call("ADD", uid="u2", container="c2", netns=other_netns)["status"] == 0
    theirs = host.everything()
    for netns in (None, "", other_netns):
        assert host.call("DEL", netns=netns) == {"status": 0}
        assert host.everything() == theirs
    assert host.call("DEL", uid="u2", container="c2", netns=other_netns) == {"status": 0}


@ON_EACH
def test_an_entry_that_cannot_be_read_keeps_no_other_pod(host: Any, nic: Nic) -> None:
    """The record names no owner: DEL skips it and reports so; ADD of that very VF is refused; GC goes on."""
    before = host.everything()
    host.record(nic.first, nic.second)
    assert host.call("ADD")["status"] == 0
    broken = host.layout.state / "vfs" / "0000:04:00.4.json"
    broken.write_text('{"v":1')
    host.record({**nic.first, "vf": 2, "pci": "0000:04:00.4"}, uid="u2")
    answer = host.call("ADD", uid="u2", container="c2")
    assert (answer["code"], "0000:04:00.4.json" in answer["msg"]) == (100, True)
    assert host.call("DEL") == {"status": 0}
    assert any("ledger entry is ignored" in line["event"] for line in host.log())
    assert broken.read_text() == '{"v":1'
    broken.unlink()
    assert host.everything() == before


@ON_EACH
def test_a_vf_of_another_plugin_in_the_same_pod_stays(host: Any, nic: Nic) -> None:
    """The record names it, and it lies in the sandbox's namespace: but the ledger gives it to another sandbox."""
    host.record(nic.first, nic.second)
    assert host.call("ADD")["status"] == 0
    links = host.in_pod()
    assert host.call("DEL", container="c2") == {"status": 0}
    assert host.in_pod() == links
