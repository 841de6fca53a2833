"""Determine which socket the kubelet uses, and plan the edits that make it use the shim's.

The edit changes the place that decides: the last flag or, without one, the last configuration file with the key. Every
edit is tried on a copy of the host, and the result is read again as the kubelet reads it.

If the kubelet has a folder for drop-ins (``--config-dir``), our file there keeps the endpoint when the distribution
rewrites its own file, as nodeadm does at each boot (writeKubeletConfigToDir in awslabs/amazon-eks-ami).

Since 1.34 kubeadm keeps the socket in a third file (feature NodeLocalCRISocket: off in 1.32, on by default from 1.34,
locked on in 1.36). init and join write it (WriteInstanceConfigToDisk in cmd/kubeadm/app/phases/kubelet/config.go). Each
``kubeadm upgrade`` builds the kubelet's configuration from the cluster's ConfigMap, the folder of ``--patches`` and, as
the last patch, this file, which it does not change (WriteConfigToDisk there). If the file does not exist, kubeadm moves
the flag of kubeadm-flags.env into a new one (WriteKubeletConfigFiles in
cmd/kubeadm/app/phases/upgrade/postupgrade.go). The kubelet does not read this file; kubeadm itself connects to the
runtime by it (GetNodeRegistration in cmd/kubeadm/app/util/config/cluster.go).
"""

import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress

from cli.node.errors import NodeError
from cli.node.plan.kubelet.command_line import (
    CONFIG,
    FLAGS,
    UNIT,
    KubeletCommand,
    address,
    command_paths,
    config_files,
    read_command,
    running,
)
from cli.node.plan.kubelet.config_text import endpoint_in, set_endpoint
from cli.node.plan.states import Edit, File, Host, PathChange, edited

KubeletChange = Edit | PathChange
# The kubelet's default endpoint (SetDefaults_KubeletConfiguration in pkg/kubelet/apis/config/v1beta1).
CONTAINERD = "unix:///run/containerd/containerd.sock"
INSTANCE = "/var/lib/kubelet/instance-config.yaml"
OURS = f"/etc/systemd/system/{UNIT}.d/20-mooring.conf"
_DROP_IN = "99-mooring.conf"
_EXTRA_ARGS = "KUBELET_EXTRA_ARGS"
# The value may be quoted, or follow on the next line after a backslash.
_FLAG = re.compile(r"""--container[-_]runtime[-_]endpoint(?:=|(?:\s|\\\n)+)["']?(?P<address>[^\s"'\\]+)""")
# In units, drop-ins and environment files (systemd.syntax(7), systemd.exec(5)).
_COMMENT = re.compile(r"^[ \t]*[#;].*$", re.MULTILINE)
_CONFIG_HEAD = (
    "# Written by mooring-node install.\napiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
)


def endpoint(host: Host, named: str = "") -> str | None:
    """Return the socket of the kubelet's next start, ``unix://…``; None if there is none or it is unknown."""
    with suppress(NodeError):
        return _endpoint(host, read_command(host, named))
    return None


def switch(host: Host, listen: str, named: str = "") -> list[KubeletChange]:
    """Return the changes that make the kubelet use the socket ``listen``; raise NodeError if that is impossible."""
    command = read_command(host, named)
    kept = _kubeadms(host, command, listen)
    if _endpoint(host, command) == listen:
        return kept
    if command.arguments.endpoint is not None:
        return [_flag_edit(host, command, listen)]
    if changes := _config_changes(host, command, listen):
        return [*kept, *changes]
    return [*kept, *_extra_args(host, command, listen)]


def returned(host: Host, ours: Collection[str], runtime: str, named: str = "") -> list[KubeletChange]:
    """Return the changes that replace every socket of ``ours`` by ``runtime``.

    This is for what remains after our changes were undone: another program may have moved our flag to another file.
    """
    files, configs = [FLAGS], [CONFIG, INSTANCE]
    with suppress(NodeError):
        command = read_command(host, named)
        files += command.files
        configs += config_files(host, command.arguments)
    flags = [
        Edit(path, match[0], _with_address(match, runtime))
        for path in dict.fromkeys(files)
        for match in _flags(host, path)
        if address(match["address"]) in ours
    ]
    return [*flags, *(edit for path in dict.fromkeys(configs) for edit in _returned_key(host, path, ours, runtime))]


def difference(host: Host, named: str = "") -> str:
    """Return how the running kubelet's arguments differ from those of its next start, empty if they are equal."""
    runs = running(host)
    if runs is None:
        return ""
    following = read_command(host, named).arguments
    if runs == following or (named and runs.config is None):
        return ""
    return f"the kubelet runs with {runs}, but will start with {following}: run systemctl restart {UNIT}"


def paths(host: Host, named: str) -> set[str]:
    """Return the paths of the kubelet's files, as far as the known files name them; see `command_paths`."""
    asked = {*command_paths(host, named), FLAGS, CONFIG, INSTANCE, OURS}
    with suppress(NodeError):
        if folder := read_command(host, named).arguments.config_dir:
            asked.add(f"{folder}/{_DROP_IN}")
    return asked


def _endpoint(host: Host, command: KubeletCommand) -> str | None:
    if command.arguments.endpoint is not None:
        return command.arguments.endpoint
    values = [endpoint_in(path, host.text(path) or "") for path in config_files(host, command.arguments)]
    given = [value for value in values if value is not None]
    return address(given[-1]) if given and given[-1] else None


def _flag_edit(host: Host, command: KubeletCommand, listen: str) -> KubeletChange:
    """Return the edit of the flag that decides; raise NodeError if every edit would change another argument, too."""
    for path in reversed(command.files):
        for match in reversed(_flags(host, path)):
            edit = Edit(path, match[0], _with_address(match, listen))
            after = read_command(host.with_text(path, edited(edit, host.text(path) or "")))
            if after.arguments.endpoint == listen and after.others == command.others:
                return edit
    raise NodeError(
        f"flag --container-runtime-endpoint={command.arguments.endpoint} of the kubelet: none of "
        f"{', '.join(command.files)} can be edited so that it becomes {listen!r}"
    )


def _config_changes(host: Host, command: KubeletCommand, listen: str) -> list[KubeletChange]:
    """Edit the file that decides, or the first one; also write our drop-in if the kubelet reads drop-ins."""
    files = config_files(host, command.arguments)
    given = [path for path in files if endpoint_in(path, host.text(path) or "") is not None]
    own = [path for path in files if path == command.arguments.config]
    edits = [set_endpoint(path, host.text(path) or "", listen) for path in given[-1:] or own]
    changes: list[KubeletChange] = [edit for edit in edits if edit is not None]
    if folder := command.arguments.config_dir:
        path, wanted = f"{folder}/{_DROP_IN}", File(f"{_CONFIG_HEAD}containerRuntimeEndpoint: {listen}\n")
        if host.at(path) != wanted:
            changes = [change for change in changes if change.path != path]
            changes.append(PathChange(path, host.at(path), wanted, host.missing_folder(path)))
    return changes


def _kubeadms(host: Host, command: KubeletCommand, listen: str) -> list[KubeletChange]:
    """Edit kubeadm's own file, if the kubelet reads the configuration that kubeadm makes of it and no flag decides."""
    text = host.text(INSTANCE)
    if text is None or command.arguments.config != CONFIG or command.arguments.endpoint is not None:
        return []
    edit = set_endpoint(INSTANCE, text, listen)
    return [edit] if edit is not None else []


def _extra_args(host: Host, command: KubeletCommand, listen: str) -> Sequence[KubeletChange]:
    """Set the endpoint through kubeadm's variable for extra flags, if the unit uses it and nothing else sets it.

    A unit's EnvironmentFile takes precedence over its Environment (systemd.exec(5)), and later ones over earlier ones.
    """
    wanted = File(f'[Service]\nEnvironment="{_EXTRA_ARGS}=--container-runtime-endpoint={listen}"\n')
    after = read_command(host.with_text(OURS, wanted.text))
    if (after.arguments.endpoint, after.others) != (listen, command.others):
        raise NodeError(
            "no flag or file sets the kubelet's containerRuntimeEndpoint, and setting the variable "
            f"{_EXTRA_ARGS} would have no effect, or would remove other flags: add --container-runtime-endpoint "
            f"with the runtime's socket to the command of {UNIT!r}"
        )
    return [PathChange(OURS, host.at(OURS), wanted, host.missing_folder(OURS))]


def _returned_key(host: Host, path: str, ours: Collection[str], runtime: str) -> Iterator[Edit]:
    text = host.text(path)
    with suppress(NodeError):
        if text is not None and address(endpoint_in(path, text) or "") in ours:
            edit = set_endpoint(path, text, runtime)
            if edit is not None:
                yield edit


def _flags(host: Host, path: str) -> list[re.Match[str]]:
    """Return the endpoint flags of a file that are not in comments."""
    return [*_FLAG.finditer(_COMMENT.sub("", host.text(path) or ""))] if path != OURS else []


def _with_address(match: re.Match[str], socket: str) -> str:
    """Return a flag with another address in the same notation."""
    return match[0].removesuffix(match["address"]) + socket
