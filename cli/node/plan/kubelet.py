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
from collections.abc import Collection

import yaml

from cli.node.errors import NodeError
from cli.node.plan.states import Edit, File, Host, PathChange, added

KubeletChange = Edit | PathChange
CONTAINERD = "unix:///run/containerd/containerd.sock"
FLAGS = "/var/lib/kubelet/kubeadm-flags.env"
CONFIG = "/var/lib/kubelet/config.yaml"
INSTANCE = "/var/lib/kubelet/instance-config.yaml"
DROP_INS = tuple(f"{folder}/kubelet.service.d" for folder in ("/etc/systemd/system", "/usr/lib/systemd/system"))
UNITS = tuple(f"{folder}/kubelet.service" for folder in ("/etc/systemd/system", "/usr/lib/systemd/system"))
ENVIRONMENT = ("/etc/default/kubelet", "/etc/sysconfig/kubelet")
OURS = f"{DROP_INS[0]}/20-mooring.conf"
_FLAG = re.compile(r"""--container-runtime-endpoint[=\s]+(?P<address>[^\s"']+)""")
_KEY = re.compile(r"""^containerRuntimeEndpoint:[ \t]*["']?(?P<address>[^\s"'#]*).*$""", re.MULTILINE)


def endpoint(host: Host, config: str = CONFIG) -> str | None:
    """Return the socket that the kubelet is configured with, ``unix://…``; None without one."""
    told = [match["address"] for path in _flag_places(host) for match in _FLAG.finditer(host.text(path) or "")]
    told += [match["address"] for path in (config, INSTANCE) for match in _KEY.finditer(host.text(path) or "")]
    return next((_address(one) for one in told if one), None)


def switch(host: Host, listen: str, config: str = CONFIG) -> list[KubeletChange]:
    """Return the changes after which the kubelet uses ``listen``; raise NodeError if it cannot be configured."""
    places = [path for path in _flag_places(host) if _FLAG.search(host.text(path) or "")]
    if places:
        return [edit for path in places for edit in _flag_edits(path, host.text(path) or "", listen)]
    kept = _key_edits(INSTANCE, host.text(INSTANCE) or "", listen) if host.text(INSTANCE) is not None else []
    if host.text(config) is not None:
        return [*kept, *_key_edits(config, host.text(config) or "", listen)]
    return [*kept, *_drop_in(host, listen)]


def returned(host: Host, ours: Collection[str], runtime: str, config: str = CONFIG) -> list[KubeletChange]:
    """Return the changes after which no place names a socket of ``ours`` any more, but the runtime's.

    It is for what is left when our own changes are undone: a flag of ours may have been moved to another file since.
    """
    flags = [
        Edit(path, match[0], f"--container-runtime-endpoint={runtime}")
        for path in _flag_places(host)
        for match in _FLAG.finditer(host.text(path) or "")
        if _address(match["address"]) in ours
    ]
    keys = [
        Edit(path, match[0], f"containerRuntimeEndpoint: {runtime}")
        for path in (INSTANCE, config)
        for match in _KEY.finditer(host.text(path) or "")
        if _address(match["address"]) in ours
    ]
    return [*flags, *keys]


def _flag_places(host: Host) -> list[str]:
    drop_ins = [f"{folder}/{name}" for folder in DROP_INS for name in host.below(folder) if name.endswith(".conf")]
    return [path for path in (FLAGS, *ENVIRONMENT, *drop_ins, *UNITS) if host.text(path) is not None and path != OURS]


def _flag_edits(path: str, text: str, listen: str) -> list[KubeletChange]:
    found = {match[0]: match["address"] for match in _FLAG.finditer(text)}
    if len(found) > 1:
        raise NodeError(
            f"{path!r} tells the kubelet several times which runtime it has: leave one of {', '.join(found)}"
        )
    new = f"--container-runtime-endpoint={listen}"
    return [Edit(path, old, new) for old, address in found.items() if _address(address) != listen]


def _key_edits(path: str, text: str, listen: str) -> list[KubeletChange]:
    if text.lstrip().startswith("{"):
        raise NodeError(f"kubelet configuration {path!r} is JSON: set containerRuntimeEndpoint to {listen!r} in it")
    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError as wrong:
        raise NodeError(f"kubelet configuration {path!r} cannot be read: {wrong}") from wrong
    if document is not None and not isinstance(document, dict):
        raise NodeError(f"kubelet configuration {path!r} is not a mapping")
    match = _KEY.search(text)
    if match is None:
        return [added(path, text, f"containerRuntimeEndpoint: {listen}\n")]
    if _address(match["address"]) == listen:
        return []
    return [Edit(path, match[0], f"containerRuntimeEndpoint: {listen}")]


def _drop_in(host: Host, listen: str) -> list[KubeletChange]:
    """Set it by kubeadm's variable for extra flags, if the unit or a drop-in reads that."""
    readers = [path for path in _flag_places(host) if "$KUBELET_EXTRA_ARGS" in (host.text(path) or "")]
    if not readers:
        raise NodeError("no flag, file or variable was found that tells the kubelet its containerRuntimeEndpoint")
    wanted = File(f'[Service]\nEnvironment="KUBELET_EXTRA_ARGS=--container-runtime-endpoint={listen}"\n')
    now = host.at(OURS)
    return [] if now == wanted else [PathChange(OURS, now, wanted, host.missing_folder(OURS))]


def _address(told: str) -> str:
    return told if "://" in told else f"unix://{told}"
