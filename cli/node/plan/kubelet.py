"""Where the kubelet's configuration names the runtime's socket, and the edits that make it name the shim's.

A flag takes precedence over the configuration file (``containerRuntimeEndpoint``), so every place that may hold the
flag is read. These are kubeadm's flags file, the distributions' environment files, the unit and its drop-ins.

kubeadm keeps the socket in a third file since 1.34 (feature NodeLocalCRISocket: off in 1.32, on by default from 1.34,
locked on in 1.36). init and join write it (WriteInstanceConfigToDisk in cmd/kubeadm/app/phases/kubelet/config.go). Each
``kubeadm upgrade`` makes the kubelet's configuration from the cluster's ConfigMap, the folder of ``--patches`` and, as
the last patch, this file, which it leaves as it is (WriteConfigToDisk there). Where there is none, it moves the flag of
kubeadm-flags.env into a new one (WriteKubeletConfigFiles in cmd/kubeadm/app/phases/upgrade/postupgrade.go). The kubelet
itself does not read the file. kubeadm takes its own way to the runtime from it (GetNodeRegistration in
cmd/kubeadm/app/util/config/cluster.go).
"""

import re
from collections.abc import Collection, Mapping, Sequence

import yaml

from cli.node.errors import NodeError
from cli.node.plan.states import Edit, File, Host, PathChange, added, edited

KubeletChange = Edit | PathChange
CONTAINERD = "unix:///run/containerd/containerd.sock"
FLAGS = "/var/lib/kubelet/kubeadm-flags.env"
CONFIG = "/var/lib/kubelet/config.yaml"
INSTANCE = "/var/lib/kubelet/instance-config.yaml"
# systemd's folders of units (systemd.unit(5)).
_FOLDERS = ("/etc/systemd/system", "/run/systemd/system", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system")
DROP_INS = tuple(f"{folder}/kubelet.service.d" for folder in _FOLDERS)
UNITS = tuple(f"{folder}/kubelet.service" for folder in _FOLDERS)
ENVIRONMENT = ("/etc/default/kubelet", "/etc/sysconfig/kubelet")
OURS = f"{DROP_INS[0]}/20-mooring.conf"
_NAME = "containerRuntimeEndpoint"
_EXTRA_ARGS = "KUBELET_EXTRA_ARGS"
# The value may be in quotes, or on the line that a backslash continues.
_FLAG = re.compile(r"""--container-runtime-endpoint(?:=|(?:\s|\\\n)+)["']?(?P<address>[^\s"'\\]+)""")
# In units, drop-ins and environment files (systemd.syntax(7), systemd.exec(5)).
_COMMENT = re.compile(r"^[ \t]*[#;].*$", re.MULTILINE)
# With the end of the line before it: the same words in a comment are no key.
_KEY = re.compile(rf"""(?:\A|\n){_NAME}:[ \t]*["']?(?P<address>[^\s"'#]*).*""")
_SETS_EXTRA_ARGS = re.compile(rf"""(?:^|[\s"'=]){_EXTRA_ARGS}=""", re.MULTILINE)


def endpoint(host: Host, config: str = CONFIG) -> str | None:
    """Return the socket that the kubelet is configured with, ``unix://…``; None without one."""
    told = [match["address"] for path in _flag_places(host) for match in _flags(host, path)]
    told += [value for path in (config, INSTANCE) if (value := _told_by_key(host.text(path) or "")) is not None]
    return next((_address(one) for one in told if one), None)


def switch(host: Host, listen: str, config: str = CONFIG) -> list[KubeletChange]:
    """Return the changes after which the kubelet uses ``listen``; raise NodeError if it cannot be configured."""
    found = {path: flags for path in _flag_places(host) if (flags := _flags(host, path))}
    if found:
        _refuse_different(found, listen)
        return [edit for path, flags in found.items() for edit in _flag_edits(path, flags, listen)]
    kept = _key_edits(INSTANCE, host.text(INSTANCE) or "", listen) if host.text(INSTANCE) is not None else []
    if host.text(config) is not None:
        return [*kept, *_key_edits(config, host.text(config) or "", listen)]
    return [*kept, *_drop_in(host, listen)]


def returned(host: Host, ours: Collection[str], runtime: str, config: str = CONFIG) -> list[KubeletChange]:
    """Return the changes after which no place names a socket of ``ours`` any more, but the runtime's.

    It is for what is left when our own changes are undone: a flag of ours may have been moved to another file since.
    """
    flags = [
        Edit(path, match[0], _with_address(match, runtime))
        for path in _flag_places(host)
        for match in _flags(host, path)
        if _address(match["address"]) in ours
    ]
    keys = [
        _key_edit(path, match, runtime)
        for path in (INSTANCE, config)
        for match in _KEY.finditer(host.text(path) or "")
        if _address(match["address"]) in ours
    ]
    return [*flags, *keys]


def _flag_places(host: Host) -> list[str]:
    drop_ins = [f"{folder}/{name}" for folder in DROP_INS for name in host.below(folder) if name.endswith(".conf")]
    return [path for path in (FLAGS, *ENVIRONMENT, *drop_ins, *UNITS) if host.text(path) is not None and path != OURS]


def _flags(host: Host, path: str) -> list[re.Match[str]]:
    """Return a file's flags that are not in a comment."""
    return [*_FLAG.finditer(_COMMENT.sub("", host.text(path) or ""))]


def _refuse_different(found: Mapping[str, Sequence[re.Match[str]]], listen: str) -> None:
    """Raise NodeError for flags that name different sockets: which of them the kubelet takes is the unit's affair."""
    told = {path: {_address(match["address"]) for match in flags} - {listen} for path, flags in found.items()}
    sockets = {address.replace("/var/run/", "/run/") for addresses in told.values() for address in addresses}
    if len(sockets) > 1 and not any(len(addresses) > 1 for addresses in told.values()):
        where = ", ".join(f"{path!r} has {address}" for path, addresses in told.items() for address in addresses)
        raise NodeError(f"flags --container-runtime-endpoint of the kubelet disagree: {where}")


def _flag_edits(path: str, flags: Sequence[re.Match[str]], listen: str) -> list[KubeletChange]:
    found = {match[0]: match for match in flags}
    if len(found) > 1:
        raise NodeError(
            f"{path!r} tells the kubelet several times which runtime it has: leave one of {', '.join(found)}"
        )
    if "$" in flags[0]["address"]:
        raise NodeError(f"flag {flags[0][0]!r} in {path!r} has a variable: write the socket itself")
    return [
        Edit(path, old, _with_address(match, listen))
        for old, match in found.items()
        if _address(match["address"]) != listen
    ]


def _with_address(match: re.Match[str], address: str) -> str:
    """Return a flag with another address, in its own form."""
    return match[0].removesuffix(match["address"]) + address


def _key_edits(path: str, text: str, listen: str) -> list[KubeletChange]:
    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError as wrong:
        raise NodeError(f"kubelet configuration {path!r} cannot be read: {wrong}") from wrong
    if document is not None and not isinstance(document, dict):
        raise NodeError(f"kubelet configuration {path!r} is not a mapping")
    if _told_by_key(text) == listen:
        return []
    if text.lstrip().startswith("{"):
        raise NodeError(f"kubelet configuration {path!r} is JSON: set containerRuntimeEndpoint to {listen!r} in it")
    match = _KEY.search(text)
    edit = added(path, text, f"{_NAME}: {listen}\n") if match is None else _key_edit(path, match, listen)
    if _parsed(edited(edit, text)) != {**(document or {}), _NAME: listen} or _times(edited(edit, text)) != 1:
        raise NodeError(
            f"kubelet configuration {path!r} cannot be edited in its form: "
            f"set containerRuntimeEndpoint to {listen!r} in it"
        )
    return [edit]


def _key_edit(path: str, match: re.Match[str], address: str) -> Edit:
    start = "\n" if match[0].startswith("\n") else ""
    return Edit(path, match[0], f"{start}{_NAME}: {address}")


def _times(text: str) -> int:
    """Return how often a configuration has the key: of several values a parser takes one."""
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    return sum(key.value == _NAME for key, _ in root.value) if isinstance(root, yaml.MappingNode) else 0


def _parsed(text: str) -> object:
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        return None


def _told_by_key(text: str) -> str | None:
    """Return the socket that a configuration names, None without one or where it cannot be read."""
    document = _parsed(text)
    value = document.get(_NAME) if isinstance(document, dict) else None
    return value if isinstance(value, str) else None


def _drop_in(host: Host, listen: str) -> list[KubeletChange]:
    """Set it by kubeadm's variable for extra flags, if the unit or a drop-in reads that and nothing else sets it.

    What a unit's EnvironmentFile sets counts more than its Environment (systemd.exec(5)), and of two the later one.
    """
    texts = {path: _COMMENT.sub("", host.text(path) or "") for path in _flag_places(host)}
    if not any(f"${_EXTRA_ARGS}" in text for text in texts.values()):
        raise NodeError("no flag, file or variable was found that tells the kubelet its containerRuntimeEndpoint")
    if setter := next((path for path, text in texts.items() if _SETS_EXTRA_ARGS.search(text)), None):
        raise NodeError(
            f"{setter!r} sets KUBELET_EXTRA_ARGS: add --container-runtime-endpoint with the runtime's socket"
        )
    wanted = File(f'[Service]\nEnvironment="{_EXTRA_ARGS}=--container-runtime-endpoint={listen}"\n')
    now = host.at(OURS)
    return [] if now == wanted else [PathChange(OURS, now, wanted, host.missing_folder(OURS))]


def _address(told: str) -> str:
    return told if "://" in told else f"unix://{told}"
