"""Request addresses from an IPAM plugin and release them, as the CNI specification defines.

Each VF is a separate call with its own CNI_IFNAME: host-local stores addresses by container and interface, and refuses
a second one. Source: CNI specification 1.1.0, section 4 (delegation).
"""

import errno
import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_interface, ip_network
from pathlib import Path
from typing import IO, Any, Literal

from cni.kernel.inotify import has_hung_up
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

# Limit for the answer, in seconds. The kubelet allows four minutes for a sandbox; DHCP is the slowest common plugin.
_ANSWER_S = 60.0
# Seconds between checks whether a slow plugin has ended and its caller still waits.
_LOOK_S = 0.25
_WITHOUT_CHECK = re.compile(r"\bnot implemented\b").search


@dataclass(frozen=True, slots=True)
class IpamCall:
    """The parameters of a plugin's call: container, namespace, CNI_ARGS, run folder (for the lock), and VF.

    ``caller`` is the socket of the process that waits for the answer: the plugin is killed if it disconnects.
    """

    container: str
    netns: str
    args: str
    run: Path
    pci: str
    caller: int | None = None


@dataclass(frozen=True, slots=True)
class IpamResult:
    """The result of an IPAM plugin: addresses, routes, and name servers in the specification's form (``dns``)."""

    addresses: tuple[Address, ...] = ()
    routes: tuple[Route, ...] = ()
    dns: Mapping[str, Any] = field(default_factory=dict, hash=False)


def add(ipam: Ipam, call: IpamCall) -> IpamResult:
    """Request addresses; raise CniError with the code and text of the plugin.

    The plugin inherits the lock that `remove` takes: if this process is killed, the undo waits until the plugin ends.
    """
    with _hold_lock(call) as lock:
        answer = _run("ADD", ipam, call, lock)
    try:
        return _read(answer)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CniError(IO_FAILURE, "the ipam plugin's answer is not a valid result", str(error)[:200]) from error


def _read(answer: Mapping[str, Any]) -> IpamResult:
    """Read a plugin's answer; addresses are in the kernel's notation, because CHECK compares them with the kernel's."""
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
    """Return a string; raise TypeError for anything else, because `ipaddress` accepts numbers as addresses."""
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a string")
    return value


def remove(ipam: Ipam, call: IpamCall) -> None:
    """Release the addresses of one interface; raise CniError or LockBusyError."""
    with _hold_lock(call) as lock:
        _run("DEL", ipam, call, lock)


def _hold_lock(call: IpamCall) -> AbstractContextManager[int]:
    """Hold the IPAM lock of one VF, and so wait for a plugin that outlived its caller; raise LockBusyError."""
    return hold(call.run, f"{call.pci}.ipam", _ANSWER_S)


def check(ipam: Ipam, container: str, netns: str, previous: Mapping[str, Any]) -> None:
    """Call the plugin's CHECK for one interface; raise CniError with the code and text of the plugin.

    A plugin without CHECK has no complaint: whereabouts answers "CNI CHECK method is not implemented" (cmdCheck in
    cmd/whereabouts.go), and CRI-O would otherwise create no pod, because it calls CHECK after each ADD.
    """
    conf = {**ipam.conf, "prevResult": {**previous, "cniVersion": ipam.conf.get("cniVersion")}}
    try:
        _run("CHECK", Ipam(ipam.ifname, conf, ipam.path), IpamCall(container, netns, "", Path(), ""))
    except CniError as refusal:
        if not _WITHOUT_CHECK(str(refusal)):
            raise


def delegate(command: Literal["STATUS", "GC"], conf: Mapping[str, object], path: tuple[str, ...]) -> None:
    """Call the plugin's STATUS or GC; ignore the refusal of a plugin older than 1.1.0, which supports neither.

    Such a plugin refuses the version, the command, or the missing container id.
    """
    try:
        _run(command, Ipam("", conf, path), IpamCall("", "", "", Path(), ""))
    except CniError as refusal:
        if refusal.code not in (INCOMPATIBLE_VERSION, UNKNOWN_CONTAINER, BAD_ENVIRONMENT):
            raise


def _run(command: str, ipam: Ipam, call: IpamCall, *descriptors: int) -> Mapping[str, Any]:
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
                pass_fds=descriptors,
                start_new_session=True,
            )
        with process:
            outcome = _communicate(process, call.caller)
    except OSError as error:
        raise CniError(IO_FAILURE, f"ipam plugin {kind!r} cannot be run", str(error)) from error
    return _answer(kind, command, outcome)


def _fill(file: IO[bytes], conf: bytes) -> None:
    """Write a plugin's standard input to a file, and rewind it.

    A pipe would need a separate writer: after its first timeout, `Popen.communicate` stops writing (its
    ``_communicate`` registers standard input only with an input, which a second call must not have).
    """
    file.write(conf)
    file.seek(0)


def _communicate(process: "subprocess.Popen[bytes]", caller: int | None) -> "subprocess.CompletedProcess[bytes]":
    """Return a plugin's answer; kill the plugin if its caller disconnects or after _ANSWER_S.

    All processes that it started are killed at the end too. Children that keep its standard output open are not waited
    for.
    """
    deadline = time.monotonic() + _ANSWER_S
    try:
        while True:
            try:
                answer, stderr = process.communicate(timeout=_LOOK_S)
                return subprocess.CompletedProcess(process.args, process.returncode, answer, stderr)
            except subprocess.TimeoutExpired:
                if _has_ended(process):
                    _kill_group(process)
                elif caller is not None and has_hung_up(caller):
                    raise OSError(errno.ECANCELED, "the caller stopped waiting") from None
                elif time.monotonic() >= deadline:
                    raise OSError(errno.ETIMEDOUT, f"no answer within {_ANSWER_S:g} s") from None
    finally:
        _kill_group(process)


def _has_ended(process: "subprocess.Popen[bytes]") -> bool:
    """Return whether a process has ended, without reaping it, so that its id is not reused."""
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _kill_group(process: "subprocess.Popen[bytes]") -> None:
    """Kill the remaining processes of a plugin's process group.

    The kernel does not reuse the number of a group while it has members (alloc_pid in kernel/pid.c). Numbers are reused
    in turn, so that of an empty group is not soon another group's.
    """
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _find(kind: str, path: tuple[str, ...]) -> str:
    for folder in path:
        if (candidate := Path(folder) / kind).is_file():
            return str(candidate)
    raise CniError(BAD_CONFIG, f"ipam plugin {kind!r} is not in CNI_PATH {':'.join(path)!r}")


def _answer(kind: str, command: str, outcome: "subprocess.CompletedProcess[bytes]") -> Mapping[str, Any]:
    try:
        answer = json.loads(outcome.stdout) if outcome.stdout.strip() else {}
    except (ValueError, RecursionError):
        answer = {}
    if outcome.returncode != 0 or not isinstance(answer, dict):
        message = answer.get("msg") if isinstance(answer, dict) else None
        text = str(message or outcome.stderr.decode(errors="replace")[-500:] or f"status {outcome.returncode}")
        code = answer.get("code") if isinstance(answer, dict) else None
        # 0 is not a valid error code; type() excludes true, which is an int in Python.
        error_code = code if type(code) is int and code > 0 else IO_FAILURE
        raise CniError(error_code, f"ipam plugin {kind!r} failed ({command}): {text}")
    return answer
