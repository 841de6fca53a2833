"""Answer one CNI call, in the server or in a one-shot process."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import structlog

from cni import cmd_add, cmd_check, cmd_del, cmd_gc, cmd_status
from cni.kernel.sysfs import Sysfs
from cni.spec import fields
from cni.spec.conf import Conf, read_conf, read_plain_conf
from cni.spec.skel import (
    IO_FAILURE,
    REFUSAL,
    TRY_AGAIN,
    Call,
    CniError,
    check_version,
    error_answer,
    read_call,
    version_answer,
    version_of,
)
from cni.vf.ledger import LARGE, Ledger
from cni.vf.node import Node
from mooring.errors import RecordError
from mooring.locks import LockBusyError
from mooring.nic.vf_settings import VfSettingsApi, VfSettingsSelector

_log = structlog.get_logger()
# Fields of a network configuration that must have the node's own values.
_NODE_FIELDS = ("state", "run", "sysfs", "server")
_FOR_PLAIN_PODS = ("ADD", "CHECK", "STATUS")
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class Answer:
    """The text for standard output, the exit status (0 or 1), and the CNI error code in the text (0: success)."""

    text: str
    status: int
    code: int = 0


def answer(
    environment: Mapping[str, str],
    stdin: bytes,
    vf_settings: Callable[[], VfSettingsApi],
    defaults: Mapping[str, object] | None = None,
    caller: int | None = None,
    *,
    enforces_places: bool = False,
    ipam_files: tuple[str, ...] | None = (),
    enforces_offer: bool = True,
) -> Answer:
    """Answer a call; every failure becomes an error object of the specification.

    ``environment`` and ``stdin`` are those of the call; ``vf_settings`` creates the access to the PFs' settings.
    ``defaults`` has the node's own folders, socket and name, for fields that the network configuration leaves out. With
    ``enforces_places`` the configuration must not name other folders or another socket, and only IPAM configurations
    from ``ipam_files`` (None: any). ``caller`` is the socket of the process that waits for the answer: an ADD ends
    early if it disconnects. ``enforces_offer`` is as in `cni.vf.node.Node`.
    """
    version = ""
    try:
        with LARGE.slot(len(stdin)):
            call = read_call(environment, stdin, caller)
            version = version_of(call.conf)
            foreign = None
            if enforces_places:
                call, foreign = _with_own_places(call, defaults or {})
            conf = _read_conf(call, version, defaults or {}, foreign)
        if conf is not None and enforces_places:
            conf = replace(conf, ipam_files=ipam_files)
        return Answer(_dispatch(call, conf, vf_settings, enforces_offer=enforces_offer), 0)
    except CniError as error:
        return _refusal(error, version)
    except (LockBusyError, RecordError) as error:
        code = REFUSAL if isinstance(error, RecordError) else TRY_AGAIN
        return _refusal(CniError(code, str(error)), version)
    except OSError as error:
        return _refusal(CniError(IO_FAILURE, f"an operation on this node failed: {error}"), version)
    except Exception as error:  # noqa: BLE001 - the top of the program: the runtime reads JSON, never a traceback
        _log.exception("call failed unexpectedly")
        return _refusal(CniError(IO_FAILURE, f"{type(error).__name__}: {error}"), version)


def _read_conf(
    call: Call, version: str, defaults: Mapping[str, object], foreign: CniError | None = None
) -> Conf | None:
    """Return the configuration of a call; None for VERSION, which does not depend on it. Raise CniError 1 or 7.

    ``foreign`` is the error of a configuration that names other folders than the node's own.
    """
    if call.command == "VERSION":
        return None
    check_version(call.command, call.conf)
    raw = {**defaults, **call.conf}
    try:
        if foreign is not None:
            raise foreign
        return read_conf(call, raw, version)
    except CniError as error:
        if call.command not in _FOR_PLAIN_PODS:
            raise
        # Most fields concern VFs; a wrong one must not stop pods without VFs.
        return read_plain_conf(raw, version, error)


def _with_own_places(call: Call, defaults: Mapping[str, object]) -> tuple[Call, CniError | None]:
    """Return the call with the node's own folders and socket, and CniError 7 if its configuration names others.

    ``awaitInit`` is treated the same if it is on for the node. Under Multus a tenant writes the configuration
    (NetworkAttachmentDefinition), and could name folders with their own records and ledger, or their own server. A DEL
    is never refused for its configuration, and finds the VF in the node's own ledger.
    """
    node_fields = {name: defaults[name] for name in _NODE_FIELDS if name in defaults}
    if defaults.get("awaitInit"):
        # A network may turn it on too, but must not turn it off.
        node_fields["awaitInit"] = True
    foreign = None
    try:
        for name, value in node_fields.items():
            if call.command != "DEL" and call.conf.get(name, value) != value:
                fields.refuse(
                    name, f": {call.conf[name]!r:.80} differs from {value!r}, which this node's configuration requires"
                )
    except CniError as error:
        foreign = error
    return replace(call, conf={**call.conf, **node_fields}), foreign


def _refusal(error: CniError, version: str) -> Answer:
    _log.warning("call refused", code=error.code, reason=str(error))
    return Answer(error_answer(error, version or version_of({})), 1, error.code)


def _dispatch(call: Call, conf: Conf | None, vf_settings: Callable[[], VfSettingsApi], *, enforces_offer: bool) -> str:
    if conf is None:
        return version_answer(call.conf)
    node = Node(
        Sysfs(Path(conf.sysfs)),
        Ledger(Path(conf.state), Path(conf.run)),
        Path(conf.run),
        VfSettingsSelector(vf_settings(), Path(conf.sysfs)),
        BOOT_ID.read_text().strip(),
        enforces_offer,
    )
    match call.command:
        case "ADD":
            return json.dumps(cmd_add.run(node, call, conf))
        case "DEL":
            cmd_del.run(node, call, conf)
        case "CHECK":
            cmd_check.run(node, call, conf)
        case "GC":
            cmd_gc.run(node, call, conf)
        case "STATUS":
            cmd_status.run(node, call)
    return ""
