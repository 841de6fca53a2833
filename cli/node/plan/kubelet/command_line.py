"""How the kubelet of a host is started, and from which files it takes its configuration.

The command is that of kubelet.service with its drop-ins and environment files; a host without that unit is taken for
one of kubeadm's. A kubelet that runs says what its command was. Flags are pflag's (the last one counts, ``_`` is as
good as ``-``: WordSepNormalizeFunc in k8s.io/component-base); NewKubeletCommand in cmd/kubelet/app/server.go of
Kubernetes reads ``--config``, merges the files of ``--config-dir`` into it and lets flags count more.
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
# What kubeadm's packages install (10-kubeadm.conf in kubernetes/release): a host where the unit is still missing.
_KUBEADM = f"""\
[Service]
Environment="KUBELET_CONFIG_ARGS=--config={CONFIG}"
EnvironmentFile=-{FLAGS}
EnvironmentFile=-/etc/default/kubelet
EnvironmentFile=-/etc/sysconfig/kubelet
ExecStart=/usr/bin/kubelet $KUBELET_CONFIG_ARGS $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS
"""
# Programs whose kubelet is a part or a child of them, by their units, with where an operator sets its endpoint.
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
    "microshift.service": "/etc/microshift/config.d/99-mooring.yaml",
}
OS_RELEASE = "/etc/os-release"
_TALOS = re.compile(r"""^ID=["']?talos["']?$""", re.MULTILINE)
_ENDS_OF_COMMAND = (";", "&&", "||", "|", "&")


@dataclass(frozen=True, slots=True)
class Arguments:
    """The arguments that say which runtime the kubelet has, None where one is not given; paths are absolute."""

    config: str | None = None
    config_dir: str | None = None
    endpoint: str | None = None

    def __str__(self) -> str:
        given = (("config", self.config), ("config-dir", self.config_dir), (ENDPOINT, self.endpoint))
        return " ".join(f"--{name}={value}" for name, value in given if value is not None) or "none of these arguments"


@dataclass(frozen=True, slots=True)
class KubeletCommand:
    """The kubelet's command as the next start has it; ``files`` are those that say so, in the order of their reading.

    ``others`` are the words without the endpoint's flag, for the question whether an edit changes anything else.
    """

    arguments: Arguments
    files: tuple[str, ...]
    others: tuple[str, ...] = ()


def read_command(host: Host, named: str = "") -> KubeletCommand:
    """Return how the kubelet is started; raise NodeError for one that cannot be configured.

    ``named`` is the configuration file that an operator has named, for a command that names none.
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
    """Return the arguments of the kubelet that runs, None without one."""
    return None if host.kubelet is None else parse(host.kubelet.arguments[1:])


def config_files(host: Host, arguments: Arguments) -> list[str]:
    """Return the kubelet's configuration files that exist, the one that counts most last.

    Those of the folder are merged in the order in which Go's WalkDir comes to them (mergeKubeletConfigurations).
    """
    own = [arguments.config] if arguments.config and host.text(arguments.config) is not None else []
    folder = arguments.config_dir
    below = [path for path in host.files() if folder and path.startswith(f"{folder}/") and path.endswith(".conf")]
    return [*own, *sorted(below, key=lambda path: [part.encode() for part in path.split("/")])]


def command_paths(host: Host, named: str) -> Collection[str]:
    """Return the paths that `read_command` and `config_files` look at, as far as the host is known.

    ``/`` at the end asks for a folder's files, ``/**`` for all below it.
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
    """Return what a command line says."""
    config, config_dir = (_last_flag(words, name) for name in ("config", "config-dir"))
    endpoint = _last_flag(words, ENDPOINT)
    return Arguments(_absolute(config), _absolute(config_dir), address(endpoint) if endpoint else None)


def address(socket: str) -> str:
    return socket if "://" in socket else f"unix://{socket}"


def _refuse_others(host: Host) -> None:
    if _TALOS.search(host.text(OS_RELEASE) or ""):
        raise NodeError("Talos has no systemd and takes no files of others: mooring-node cannot install there")
    if any(host.text(f"{folder}/{UNIT}") for folder in FOLDERS):
        return
    for unit, place in _OTHERS.items():
        if any(host.text(f"{folder}/{unit}") is not None for folder in FOLDERS):
            raise NodeError(
                f"unit {unit!r} has the kubelet in it, and mooring-node configures only {UNIT!r}: "
                f"set it up by hand, with the kubelet's endpoint in {place}"
            )


def _words_of_kubelet(words: Sequence[str]) -> tuple[str, ...]:
    """Return the kubelet's own arguments: those behind its program, which another may start."""
    at = next((at for at, word in enumerate(words) if posixpath.basename(word) == "kubelet"), 0)
    end = next((end for end, word in enumerate(words) if end > at and word in _ENDS_OF_COMMAND), len(words))
    return tuple(words[at + 1 : end])


def _of_a_wrapper(runs: Arguments, words: Sequence[str]) -> Arguments:
    """Return the arguments of a kubelet that runs, and of whose unit nothing can be learned: a script starts it."""
    if runs.endpoint is not None:
        raise NodeError(
            f"the kubelet runs with --{ENDPOINT}={runs.endpoint}, which {words[0]!r} of {UNIT!r} gives it: "
            "mooring-node edits no scripts"
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
    """Return a path as systemd's working directory, ``/``, makes it absolute."""
    return posixpath.normpath(posixpath.join("/", path)) if path else None
