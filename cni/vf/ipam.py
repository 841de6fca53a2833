"""Request addresses from an IPAM plugin and release them, as the CNI defines: a program, its environment, its stdin.

Each VF is a call of its own with its own CNI_IFNAME: host-local keys addresses by container and interface and refuses a
second one. Source: CNI specification 1.1.0, section 4 (delegation).
"""

import errno
import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_interface, ip_network
from pathlib import Path
from typing import IO, Any, Literal

from cni.kernel.inotify import hung_up
from cni.spec.result import Address, Route
from cni.spec.skel import (
    BAD_CONFIG,
    BAD_ENVIRONMENT,
    IN_IPAM,
    INCOMPATIBLE_VERSION,
    IO_FAILURE,
    UNKNOWN_CONTAINER,
    CniError,
)
from mooring.locks import hold
from mooring.records.ledger import Ipam

# The kubelet gives a whole sandbox four minutes; DHCP is the slowest plugin in common use.
_ANSWER_S = 60.0
# How often a plugin that takes long is looked at, and whether its caller still waits.
_LOOK_S = 0.25


@dataclass(frozen=True, slots=True)
class IpamCall:
    """The parameters of a plugin's call: container, namespace, CNI_ARGS, and the path of the lock of the VF's IPAM.

    ``caller`` is the socket of the process that waits for the answer: the plugin ends when that has left.
    """

    container: str
    netns: str
    args: str
    run: Path
    pci: str
    caller: int | None = None


@dataclass(frozen=True, slots=True)
class IpamResult:
    """What an IPAM plugin gave: addresses, routes, and name servers as the specification writes them (``dns``)."""

    addresses: tuple[Address, ...] = ()
    routes: tuple[Route, ...] = ()
    dns: Mapping[str, Any] = field(default_factory=dict, hash=False)


def add(ipam: Ipam, call: IpamCall) -> IpamResult:
    """Request addresses; raise CniError with the plugin's own code and text.

    The plugin inherits the lock that `remove` takes: if this process is killed, the undo waits until the plugin ends.
    """
    with _locked(call) as lock:
        answer = _run("ADD", ipam, call, lock)
    try:
        return _read(answer)
    except (ValueError, KeyError, TypeError, AttributeError) as wrong:
        raise CniError(IO_FAILURE, "the ipam plugin's answer is not a valid result", str(wrong)[:200]) from wrong


def _read(answer: Mapping[str, Any]) -> IpamResult:
    """Read a plugin's answer; write addresses as the kernel does, because CHECK compares them with the kernel's."""
    return IpamResult(
        tuple(
            Address(str(ip_interface(_text(ip["address"]))), _gateway(ip.get("gateway"))) for ip in _list(answer, "ips")
        ),
        tuple(
            Route(str(ip_network(_text(route["dst"]), strict=False)), _gateway(route.get("gw")))
            for route in _list(answer, "routes")
        ),
        dict(answer.get("dns") or {}),
    )


def _list(answer: Mapping[str, Any], name: str) -> Sequence[Mapping[str, Any]]:
    return answer.get(name) or ()


def _gateway(value: object) -> str | None:
    return str(ip_address(_text(value))) if value else None


def _text(value: object) -> str:
    """Refuse what is not a string: `ipaddress` would take a number for an address."""
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a string")
    return value


def remove(ipam: Ipam, call: IpamCall) -> None:
    """Release the addresses of one interface; do nothing for a plugin that holds none."""
    with _locked(call) as lock:
        _run("DEL", ipam, call, lock)


def _locked(call: IpamCall) -> AbstractContextManager[int]:
    """Hold the lock of one VF's IPAM; a plugin that outlived its caller ends first. LockBusyError after a while."""
    return hold(call.run, f"{call.pci}.ipam", _ANSWER_S)


def check(ipam: Ipam, container: str, netns: str, previous: Mapping[str, Any]) -> None:
    """Pass CHECK on for one interface; raise CniError with the plugin's own code and text."""
    conf = {**ipam.conf, "prevResult": {**previous, "cniVersion": ipam.conf.get("cniVersion")}}
    _run("CHECK", Ipam(ipam.ifname, conf, ipam.path), IpamCall(container, netns, "", Path(), ""))


def delegate(command: Literal["STATUS", "GC"], conf: Mapping[str, object], path: tuple[str, ...]) -> None:
    """Pass STATUS or GC on; a plugin from before 1.1.0 supports neither.

    Such a plugin refuses the version, the command, or first of all the container's id, which neither command has.
    """
    try:
        _run(command, Ipam("", conf, path), IpamCall("", "", "", Path(), ""))
    except CniError as refused:
        if refused.code not in (INCOMPATIBLE_VERSION, UNKNOWN_CONTAINER, BAD_ENVIRONMENT):
            raise


def _run(command: str, ipam: Ipam, call: IpamCall, *inherited: int) -> Mapping[str, Any]:
    kind = str(dict(ipam.conf.get("ipam", {})).get("type", ""))  # type: ignore[call-overload]
    environment = {
        "CNI_COMMAND": command,
        "CNI_CONTAINERID": call.container,
        "CNI_NETNS": call.netns,
        "CNI_IFNAME": ipam.ifname,
        "CNI_ARGS": call.args,
        "CNI_PATH": ":".join(ipam.path),
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        IN_IPAM: "1",
    }
    program = _find(kind, ipam.path)
    try:
        with os.fdopen(os.memfd_create("cni-conf"), "w+b") as conf:
            _fill(conf, json.dumps(ipam.conf).encode())
            process = subprocess.Popen(
                [program],
                stdin=conf,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=environment,
                pass_fds=inherited,
                start_new_session=True,
            )
        with process:
            done = _communicate(process, call.caller)
    except OSError as failed:
        raise CniError(IO_FAILURE, f"ipam plugin {kind!r} cannot be run", str(failed)) from failed
    return _answer(kind, command, done)


def _fill(file: IO[bytes], conf: bytes) -> None:
    """Write a plugin's standard input, to be read from its begin.

    A pipe would need a writer beside the look at the caller: after its first timeout `Popen.communicate` writes no more
    (its ``_communicate`` registers standard input only where it is given an input, which a second call must not be).
    """
    file.write(conf)
    file.seek(0)


def _communicate(process: "subprocess.Popen[bytes]", caller: int | None) -> "subprocess.CompletedProcess[bytes]":
    """Return a plugin's answer; end it and all that it has started when the caller leaves, after a while, and at last.

    A child that outlives the plugin with its standard output open is not waited for.
    """
    deadline = time.monotonic() + _ANSWER_S
    try:
        while True:
            try:
                answer, said = process.communicate(timeout=_LOOK_S)
                return subprocess.CompletedProcess(process.args, process.returncode, answer, said)
            except subprocess.TimeoutExpired:
                if _has_ended(process):
                    _kill_group(process)
                elif caller is not None and hung_up(caller):
                    raise OSError(errno.ECANCELED, "the caller stopped waiting") from None
                elif time.monotonic() >= deadline:
                    raise OSError(errno.ETIMEDOUT, f"no answer within {_ANSWER_S:g} s") from None
    finally:
        _kill_group(process)


def _has_ended(process: "subprocess.Popen[bytes]") -> bool:
    """Return whether a process has ended; its id stays its own until it is waited for."""
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _kill_group(process: "subprocess.Popen[bytes]") -> None:
    """Kill what is left of a plugin's process group.

    The kernel gives a group's number to nobody else while the group has a member (alloc_pid in kernel/pid.c), and
    numbers go round: an empty group's is not another one's so soon.
    """
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _find(kind: str, path: tuple[str, ...]) -> str:
    for folder in path:
        if (candidate := Path(folder) / kind).is_file():
            return str(candidate)
    raise CniError(BAD_CONFIG, f"ipam plugin {kind!r} is not in CNI_PATH {':'.join(path)!r}")


def _answer(kind: str, command: str, done: "subprocess.CompletedProcess[bytes]") -> Mapping[str, Any]:
    try:
        answer = json.loads(done.stdout) if done.stdout.strip() else {}
    except (ValueError, RecursionError):
        answer = {}
    if done.returncode != 0 or not isinstance(answer, dict):
        said = answer.get("msg") if isinstance(answer, dict) else None
        text = str(said or done.stderr.decode(errors="replace")[-500:] or f"status {done.returncode}")
        code = answer.get("code") if isinstance(answer, dict) else None
        # 0 is not a valid error code, and in Python true is an int.
        own = code if type(code) is int and code > 0 else IO_FAILURE
        raise CniError(own, f"ipam plugin {kind!r} failed ({command}): {text}")
    return answer
