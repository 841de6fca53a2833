"""Determine how a host's kubelet is started, and which configuration files it reads.

The command comes from kubelet.service with its drop-ins and environment files; without that unit the host is assumed to
use kubeadm. The arguments of a running kubelet come from its process. Flags follow pflag: the last one counts, and
``_`` equals ``-`` (WordSepNormalizeFunc in k8s.io/component-base). NewKubeletCommand in cmd/kubelet/app/server.go of
Kubernetes reads ``--config``, merges the files of ``--config-dir`` into it, and gives flags precedence.
"""

import posixpath
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from cli.node.errors import NodeError
from cli.node.plan.kubelet.systemd_unit import FOLDERS, environment_files, read_service, unit_files
from cli.node.plan.states import Host

UNIT = "kubelet.service"
CONFIG = "/var/lib/kubelet/config.yaml"
FLAGS = "/var/lib/kubelet/kubeadm-flags.env"
ENDPOINT = "container-runtime-endpoint"
# The unit of kubeadm's packages (10-kubeadm.conf in kubernetes/release), for a host where it is not installed yet.
_KUBEADM = f"""\
[Service]
Environment="KUBELET_CONFIG_ARGS=--config={CONFIG}"
EnvironmentFile=-{FLAGS}
EnvironmentFile=-/etc/default/kubelet
EnvironmentFile=-/etc/sysconfig/kubelet
ExecStart=/usr/bin/kubelet $KUBELET_CONFIG_ARGS $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS
"""
# Units of programs that contain or start the kubelet, and where an operator sets the kubelet's endpoint with them.
_DROP_IN_OF = "/var/lib/rancher/{}/agent/etc/kubelet.conf.d/99-mooring.conf"
_OTHERS = {
    **dict.fromkeys(("k3s.service", "k3s-agent.service"), _DROP_IN_OF.format("k3s")),
    **dict.fromkeys(("rke2-server.service", "rke2-agent.service"), _DROP_IN_OF.format("rke2")),
    **dict.fromkeys(
        ("snap.microk8s.daemon-kubelite.service", "snap.microk8s.daemon-kubelet.service"),
        "/var/snap/microk8s/current/args/kubelet",
    ),
    **dict.fromkeys(("k0sworker.service", "k0scontroller.service"), "--kubelet-extra-args of k0s"),
    "snap.kubelet.daemon.service": "/var/snap/kubelet/current/args",
    "snap.k8s.kubelet.service": "/var/snap/k8s/common/args/kubelet",
    "microshift.service": "/etc/microshift/config.d/99-mooring.yaml",
}
OS_RELEASE = "/etc/os-release"
_TALOS = re.compile(r"""^ID=["']?talos["']?$""", re.MULTILINE)
_ENDS_OF_COMMAND = (";", "&&", "||", "|", "&")


@dataclass(frozen=True, slots=True)
class Arguments:
    """The kubelet's arguments that determine its runtime, each None if absent; paths are absolute."""

    config: str | None = None
    config_dir: str | None = None
    endpoint: str | None = None

    def __str__(self) -> str:
        given = (("config", self.config), ("config-dir", self.config_dir), (ENDPOINT, self.endpoint))
        return " ".join(f"--{name}={value}" for name, value in given if value is not None) or "none of these arguments"


@dataclass(frozen=True, slots=True)
class KubeletCommand:
    """The kubelet's command at its next start; ``files`` are its sources, in the order in which they are read.

    ``others`` are the words without the endpoint's flag, to check that an edit changes nothing else.
    """

    arguments: Arguments
    files: tuple[str, ...]
    others: tuple[str, ...] = ()


def read_command(host: Host, named: str = "") -> KubeletCommand:
    """Return how the kubelet is started; raise NodeError if mooring-node cannot configure it.

    ``named`` is the operator's choice of the configuration file, for a command that names none.
    """
    _refuse_others(host)
    service = read_service(host, UNIT, _KUBEADM)
    if service is None:
        files = ", ".join(unit_files(host, UNIT))
        raise NodeError(f"unit {UNIT!r} has no ExecStart= in {files}: it is masked or starts nothing")
    words = _words_of_kubelet(service.words)
    arguments = parse(words)
    if (runs := running(host)) is not None and arguments == Arguments() and runs != arguments:
        arguments = _of_a_wrapper(runs, service.words)
    if named and arguments.config not in (None, named):
        raise NodeError(f"--kubelet-config is {named!r}, but {UNIT!r} has --config={arguments.config}: name that file")
    if named:
        arguments = Arguments(named, arguments.config_dir, arguments.endpoint)
    return KubeletCommand(arguments, service.files, (*_without_endpoint(words),))


def running(host: Host) -> Arguments | None:
    """Return the arguments of the running kubelet, None if none runs."""
    return None if host.kubelet is None or host.kubelet.unit != UNIT else parse(host.kubelet.arguments[1:])


def config_files(host: Host, arguments: Arguments) -> list[str]:
    """Return the kubelet's existing configuration files; later ones take precedence.

    Files of the folder are merged in the order of Go's WalkDir (mergeKubeletConfigurations).
    """
    own = [arguments.config] if arguments.config and host.text(arguments.config) is not None else []
    folder = arguments.config_dir
    below = [path for path in host.files() if folder and path.startswith(f"{folder}/") and path.endswith(".conf")]
    return [*own, *sorted(below, key=lambda path: [part.encode() for part in path.split("/")])]


def command_paths(host: Host, named: str) -> Collection[str]:
    """Return the paths that `read_command` and `config_files` read, as far as the known files name them.

    A path with ``/`` at the end means a folder's files, with ``/**`` all files below it.
    """
    units = (UNIT,) if any(host.text(f"{folder}/{UNIT}") for folder in FOLDERS) else (UNIT, *_OTHERS)
    drop_ins = (f"{folder}/{name}.d/" for folder in FOLDERS for name in (UNIT, "service"))
    asked = {*(f"{folder}/{name}" for folder in FOLDERS for name in units), *drop_ins, OS_RELEASE}
    for path in environment_files(host, UNIT, _KUBEADM):
        asked.add(f"{posixpath.dirname(path)}/" if any(letter in path for letter in "*?[") else path)
    try:
        arguments = read_command(host, named).arguments
    except NodeError:
        return asked
    asked |= {path for path in (arguments.config, named) if path}
    return asked | ({f"{arguments.config_dir}/**"} if arguments.config_dir else set())


def parse(words: Sequence[str]) -> Arguments:
    """Return the arguments of a command line."""
    config, config_dir = (_last_flag(words, name) for name in ("config", "config-dir"))
    endpoint = _last_flag(words, ENDPOINT)
    return Arguments(_absolute(config), _absolute(config_dir), address(endpoint) if endpoint else None)


def address(socket: str) -> str:
    return socket if "://" in socket else f"unix://{socket}"


def _refuse_others(host: Host) -> None:
    if _TALOS.search(host.text(OS_RELEASE) or ""):
        raise NodeError("Talos has no systemd and accepts no foreign files: mooring-node cannot install there")
    if any(host.text(f"{folder}/{UNIT}") for folder in FOLDERS):
        return
    for unit, place in _OTHERS.items():
        if any(host.text(f"{folder}/{unit}") is not None for folder in FOLDERS):
            raise NodeError(
                f"unit {unit!r} contains the kubelet, and mooring-node configures only {UNIT!r}: "
                f"configure it by hand, with the kubelet's endpoint in {place}"
            )
    if host.kubelet is not None and host.kubelet.unit != UNIT:
        raise NodeError(
            f"the kubelet runs in unit {host.kubelet.unit!r}, and mooring-node configures only {UNIT!r}: "
            f"configure it by hand, with --{ENDPOINT} among its arguments"
        )


def _words_of_kubelet(words: Sequence[str]) -> tuple[str, ...]:
    """Return the arguments after the kubelet's program, which another program may start."""
    at = next((at for at, word in enumerate(words) if posixpath.basename(word) == "kubelet"), 0)
    end = next((end for end, word in enumerate(words) if end > at and word in _ENDS_OF_COMMAND), len(words))
    return tuple(words[at + 1 : end])


def _of_a_wrapper(runs: Arguments, words: Sequence[str]) -> Arguments:
    """Return the arguments of a running kubelet that a script starts, so that its unit does not show them."""
    if runs.endpoint is not None:
        raise NodeError(
            f"the kubelet runs with --{ENDPOINT}={runs.endpoint}, which {words[0]!r} of {UNIT!r} sets: "
            "mooring-node does not edit scripts"
        )
    return runs


def _last_flag(words: Sequence[str], name: str) -> str | None:
    values = [value for found, value in _flags(words) if found == name]
    return values[-1] if values else None


def _flags(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    for word, following in zip(words, [*words[1:], ""], strict=False):
        if word == "--":
            return
        key, equals, value = word.partition("=")
        if key.startswith("--"):
            yield key[2:].replace("_", "-"), value if equals else following


def _without_endpoint(words: Sequence[str]) -> Iterator[str]:
    values = False
    for word in words:
        key, equals, _ = word.partition("=")
        if key.startswith("--") and key[2:].replace("_", "-") == ENDPOINT:
            values = not equals
        elif not values:
            yield word
        else:
            values = False


def _absolute(path: str | None) -> str | None:
    """Return a path as absolute; relative ones start at ``/``, systemd's working directory."""
    return posixpath.normpath(posixpath.join("/", path)) if path else None
