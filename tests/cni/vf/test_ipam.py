"""What an IPAM plugin answers: read as it is meant, written as the kernel writes it, refused where malformed."""

import json
import os
import shlex
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from cni.spec.result import Address, Route
from cni.spec.skel import IO_FAILURE, TRY_AGAIN, CniError
from cni.vf import ipam
from mooring.records.ledger import Ipam
from tests.support.polling import wait_until


def ask(folder: Path, answer: Any, status: int = 0) -> ipam.IpamResult:
    """Ask a plugin that gives this answer."""
    plugin = folder / "plugin"
    plugin.write_text(f"#!/bin/sh\necho {shlex.quote(json.dumps(answer))}\nexit {status}\n")
    plugin.chmod(0o755)
    call = ipam.IpamCall("c1", "/run/netns/pod", "", folder / "run", "0000:3b:01.0")
    return ipam.add(Ipam("net1", {"ipam": {"type": "plugin"}}, (str(folder),)), call)


def test_addresses_and_routes_are_written_as_the_kernel_writes_them(tmp_path: Path) -> None:
    """CHECK compares them with the kernel's values."""
    ips = [{"address": "FD00:0:0::5/64", "gateway": "FD00::1"}, {"address": "10.0.0.2"}]
    given = ask(
        tmp_path, {"ips": ips, "routes": [{"dst": "10.1.0.7/16", "gw": ""}, {"dst": "::/0", "gw": "fd00:0::1"}]}
    )
    assert given.addresses == (Address("fd00::5/64", "fd00::1"), Address("10.0.0.2/32"))
    assert given.routes == (Route("10.1.0.0/16"), Route("::/0", "fd00::1"))


@pytest.mark.parametrize(
    "answer",
    [
        {"ips": [{"address": 7}]},
        {"ips": [{"address": "10.0.0.2/24", "gateway": 5}]},
        {"ips": [{"gateway": "10.0.0.1"}]},
        {"ips": ["10.0.0.2/24"]},
        {"ips": 7},
        {"routes": [{"dst": "10.0.0.0/24", "gw": True}]},
        {"routes": [{"dst": "everywhere"}]},
    ],
)
def test_an_answer_without_addresses_is_code_5(tmp_path: Path, answer: dict[str, Any]) -> None:
    """A number is not an address, although it would pass for one."""
    with pytest.raises(CniError, match="is not a valid result") as error:
        ask(tmp_path, answer)
    assert error.value.code == IO_FAILURE


@pytest.mark.parametrize(("code", "expected"), [(11, TRY_AGAIN), (0, 5), (True, 5), (-1, 5), ("11", 5), (None, 5)])
def test_a_plugins_own_code_is_passed_on_if_it_is_one(tmp_path: Path, code: object, expected: int) -> None:
    """A code 0 would mean success."""
    with pytest.raises(CniError, match="no addresses left") as error:
        ask(tmp_path, {"code": code, "msg": "no addresses left"}, status=1)
    assert error.value.code == expected


def _plugin(folder: Path, script: str, caller: int | None = None) -> ipam.IpamResult:
    plugin = folder / "plugin"
    plugin.write_text(f"#!/bin/sh\n{script}\n")
    plugin.chmod(0o755)
    call = ipam.IpamCall("c1", "/run/netns/pod", "", folder / "run", "0000:3b:01.0", caller)
    return ipam.add(Ipam("net1", {"ipam": {"type": "plugin"}}, (str(folder),)), call)


def _is_alive(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_what_a_plugin_has_started_ends_with_it(tmp_path: Path) -> None:
    """A child that keeps the plugin's output open is not waited for."""
    children = tmp_path / "children"
    given = _plugin(tmp_path, f'sleep 600 &\necho $! >{children}\necho \'{{"ips":[{{"address":"10.0.0.2/24"}}]}}\'')
    assert given.addresses == (Address("10.0.0.2/24"),)
    wait_until(lambda: not _is_alive(children.read_text().strip()))


def test_a_plugin_and_its_children_end_when_the_caller_leaves(tmp_path: Path) -> None:
    """A runtime that has given up its call leaves no process behind."""
    ours, theirs = socket.socketpair()
    pids = tmp_path / "pids"

    def leave() -> None:
        wait_until(pids.exists)
        theirs.close()

    leaving = threading.Thread(target=leave)
    leaving.start()
    with ours, pytest.raises(CniError, match="the caller stopped waiting") as error:
        _plugin(tmp_path, f"sleep 600 &\necho $$ $! >{pids}.new\nmv {pids}.new {pids}\nsleep 600", ours.fileno())
    leaving.join()
    assert error.value.code == IO_FAILURE
    for pid in pids.read_text().split():
        wait_until(lambda pid=pid: not _is_alive(pid))  # type: ignore[misc]


def test_a_plugin_that_starts_slowly_is_given_its_whole_configuration(tmp_path: Path) -> None:
    """More than a pipe holds: what was not written in the first moment is written later."""
    plugin = tmp_path / "plugin"
    plugin.write_text(f"#!/bin/sh\nsleep 0.6\nwc -c >{tmp_path}/bytes\necho '{{}}'\n")
    plugin.chmod(0o755)
    conf = {"ipam": {"type": "plugin", "note": "x" * 200_000}}
    call = ipam.IpamCall("c1", "/run/netns/pod", "", tmp_path / "run", "0000:3b:01.0")
    with ThreadPoolExecutor(1) as pool:
        pool.submit(ipam.remove, Ipam("net1", conf, (str(tmp_path),)), call).result(timeout=90)
    assert int((tmp_path / "bytes").read_text()) == len(json.dumps(conf))


def test_a_plugin_is_marked_so_that_it_cannot_call_this_program_again(tmp_path: Path) -> None:
    """Its children inherit the mark, and neither executable nor program does a call that has it."""
    assert "MOORING_IPAM" not in os.environ
    _plugin(tmp_path, f'echo "$MOORING_IPAM" >{tmp_path}/mark')
    assert (tmp_path / "mark").read_text() == "1\n"


@pytest.mark.parametrize(
    ("answer", "complains"),
    [("CNI CHECK method is not implemented", False), ("no lease of container c1", True)],
)
def test_a_plugin_without_check_does_not_keep_pods_from_starting(tmp_path: Path, answer: str, complains: bool) -> None:
    """Whereabouts' answer is none, and CRI-O calls CHECK after each ADD; a missing lease is one."""
    plugin = tmp_path / "plugin"
    plugin.write_text(f"#!/bin/sh\necho '{json.dumps({'code': 100, 'msg': answer})}'\nexit 1\n")
    plugin.chmod(0o755)
    asked = Ipam("net1", {"ipam": {"type": "plugin"}}, (str(tmp_path),))
    with pytest.raises(CniError, match=answer) if complains else nullcontext():
        ipam.check(asked, "c1", "/run/netns/pod", {})
