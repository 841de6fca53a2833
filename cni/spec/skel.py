"""The input and the answer of a CNI call, as values.

`read_call` takes the environment and standard input and returns a `Call`. It raises `CniError` with the code and text
that the specification requires on standard output. Source: CNI specification 1.1.0, sections 2 (execution) and 5
(result types).
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from mooring.names import is_interface

PLUGIN = "mooring-cni"
VERSIONS = ("0.4.0", "1.0.0", "1.1.0")
Command = Literal["ADD", "DEL", "CHECK", "STATUS", "GC", "VERSION"]
COMMANDS: tuple[Command, ...] = ("ADD", "DEL", "CHECK", "STATUS", "GC", "VERSION")
# Commands for one attachment need CNI_CONTAINERID and CNI_IFNAME; those in _IN_NETNS also need CNI_NETNS.
_OF_ATTACHMENT = ("ADD", "DEL", "CHECK")
_IN_NETNS = ("ADD", "CHECK")
_SINCE_1_1 = ("STATUS", "GC")

# The codes of the specification, then Mooring's own from 100 on (docs/reference.md).
INCOMPATIBLE_VERSION = 1
UNKNOWN_CONTAINER = 3
BAD_ENVIRONMENT = 4
IO_FAILURE = 5
UNDECODABLE = 6
BAD_CONFIG = 7
TRY_AGAIN = 11
# STATUS only: the plugin cannot handle any ADD.
UNAVAILABLE = 50
REFUSAL = 100
NIC_REFUSAL = 101
MISSING_VF = 102
# CHECK only: the pod's VFs differ from what ADD configured.
DRIFT = 103

# The forwarder sends its own version to the server in this variable.
FORWARDER = "MOORING_FORWARDER"
# Set for every IPAM plugin that this program starts, and so for its children: they must not call mooring-cni.
IN_IPAM = "MOORING_IPAM"
RECURSIVE_CALL = "an ipam plugin that mooring-cni called has called mooring-cni"
_CONTAINER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,255}", re.ASCII)
_VERSION = re.compile(r"\d{1,3}\.\d{1,3}\.\d{1,3}", re.ASCII)
_MOST_BYTES = 16 << 20


class CniError(Exception):
    """A call that failed: the specification's ``code``, ``msg`` and ``details``."""

    def __init__(self, code: int, msg: str, details: str = "") -> None:
        super().__init__(code, msg, details)
        self.code = code
        self.msg = msg
        self.details = details

    def __str__(self) -> str:
        return f"{self.msg}: {self.details}" if self.details else self.msg


@dataclass(frozen=True, slots=True)
class Call:
    """One CNI call.

    ``netns`` is None if CNI_NETNS is empty; ``conf`` is the JSON object from standard input. ``forwarder`` is the
    version of the forwarder, empty if the runtime called this program itself. ``caller`` is the socket of the process
    that waits for the answer, None in a one-shot process.
    """

    command: Command
    container: str
    netns: str | None
    ifname: str
    args: Mapping[str, str]
    path: tuple[str, ...]
    conf: Mapping[str, object]
    forwarder: str = ""
    caller: int | None = None


def read_call(environment: Mapping[str, str], stdin: bytes, caller: int | None = None) -> Call:
    """Read and check a call; raise CniError 4 or 6."""
    command = environment.get("CNI_COMMAND", "")
    if command not in COMMANDS:
        raise CniError(BAD_ENVIRONMENT, f"CNI_COMMAND {command!r} is not one of {', '.join(COMMANDS)}")
    conf = _object(stdin)
    container, ifname = environment.get("CNI_CONTAINERID", ""), environment.get("CNI_IFNAME", "")
    netns = environment.get("CNI_NETNS") or None
    if command in _OF_ATTACHMENT:
        _check_attachment(container, ifname, netns, needs_netns=command in _IN_NETNS)
    return Call(
        command=command,
        container=container,
        netns=netns,
        ifname=ifname,
        args=_args(environment.get("CNI_ARGS", "")),
        path=tuple(folder for folder in environment.get("CNI_PATH", "").split(":") if folder.startswith("/")),
        conf=conf,
        forwarder=environment.get(FORWARDER, ""),
        caller=caller,
    )


def _check_attachment(container: str, ifname: str, netns: str | None, *, needs_netns: bool) -> None:
    if _CONTAINER.fullmatch(container) is None:
        raise CniError(BAD_ENVIRONMENT, f"CNI_CONTAINERID {container[:80]!r} is not a container id")
    if not is_interface(ifname):
        raise CniError(BAD_ENVIRONMENT, f"CNI_IFNAME {ifname[:80]!r} is not an interface name")
    if needs_netns and netns is None:
        raise CniError(BAD_ENVIRONMENT, "CNI_NETNS is empty: it must name the pod's network namespace")
    if netns is not None and not netns.startswith("/"):
        raise CniError(BAD_ENVIRONMENT, f"CNI_NETNS {netns[:80]!r} is not an absolute path")


def version_of(conf: Mapping[str, object]) -> str:
    """Return the CNI version of the answer; an unsupported or missing version counts as the oldest supported one."""
    version = conf.get("cniVersion")
    return version if isinstance(version, str) and version in VERSIONS else VERSIONS[0]


def check_version(command: Command, conf: Mapping[str, object]) -> None:
    """Raise CniError 1 for an unsupported version, or a version without this command."""
    version = conf.get("cniVersion")
    if version not in VERSIONS:
        raise CniError(INCOMPATIBLE_VERSION, f"cniVersion {version!r:.80} is not one of {', '.join(VERSIONS)}")
    if command in _SINCE_1_1 and version != VERSIONS[-1]:
        raise CniError(
            INCOMPATIBLE_VERSION, f"cniVersion {version!r} does not support {command}, which requires {VERSIONS[-1]}"
        )


def version_answer(conf: Mapping[str, object]) -> str:
    """Return the answer to VERSION; as the specification requires, it has the caller's version, even an unknown one."""
    conf_version = conf.get("cniVersion")
    version = conf_version if isinstance(conf_version, str) and _VERSION.fullmatch(conf_version) else VERSIONS[-1]
    return json.dumps({"cniVersion": version, "supportedVersions": list(VERSIONS)})


def error_answer(error: CniError, version: str) -> str:
    """Return the specification's error object as JSON."""
    answer: dict[str, object] = {"cniVersion": version, "code": error.code, "msg": error.msg}
    return json.dumps(answer | ({"details": error.details} if error.details else {}))


def _object(stdin: bytes) -> Mapping[str, object]:
    try:
        if len(stdin) > _MOST_BYTES:
            raise CniError(UNDECODABLE, f"the configuration is longer than {_MOST_BYTES} bytes")
        conf = json.loads(stdin or b"{}")
        # Refuse values that JSON does not have, such as NaN: the answer would contain them.
        json.dumps(conf, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError) as unreadable:
        raise CniError(UNDECODABLE, "the configuration is not JSON", str(unreadable)[:200]) from None
    if not isinstance(conf, dict):
        raise CniError(UNDECODABLE, "the configuration is not a JSON object")
    return conf


def _args(text: str) -> Mapping[str, str]:
    pairs = (pair.partition("=") for pair in text.split(";"))
    return {name: value for name, separator, value in pairs if separator}
