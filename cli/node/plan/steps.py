"""Define the steps of an installation, in an order that never breaks the node; each plans its changes from the host.

Steps that pods depend on come last: the kubelet is switched to the shim only after the shim has reported ready.
"""

import posixpath
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from cli.node.errors import NodeError
from cli.node.plan import init_unit, network, settings, texts
from cli.node.plan.cni_folder import PLUGIN
from cli.node.plan.kubelet import endpoint as kubelet
from cli.node.plan.states import Change, CniFolders, File, Host, Link, PathChange, RuntimeCopy, State, VenvBuild

HOME = "/opt/mooring"  # The default of the folder that holds the programs.
COMPLETE = "complete"  # The last file that is written into a release's folder.
LISTEN = "unix:///run/mooring/cri.sock"
LISTEN_CRIO = "unix:///run/mooring/run/crio/crio.sock"  # The kubelet recognises CRI-O by the end of this path.
OURS = (LISTEN, LISTEN_CRIO)
SERVICES = "services"  # The step that settles configuration and units.
KUBELET = "kubelet"  # The step that switches the kubelet to the shim.
BYPASS = "mooring-shim-bypass.service"
CHECK_TIMER, _CHECK = "mooring-node-check.timer", "mooring-node-check.service"
SELINUX = "/sys/fs/selinux/enforce"  # The kernel's file (selinuxfs): 1 if SELinux enforces its policy.
_UNITS = "/etc/systemd/system"
_BESIDE = ("lib", "pyvenv.cfg")
_TAKES_OVER = "--take-over"
_DAEMON_RELOAD = ("systemctl", "daemon-reload")

Command = tuple[str, ...]
Plan = Callable[[Host], Sequence[Change]]


@dataclass(frozen=True, slots=True)
class Step:
    """One step: its changes, and the commands that run after them (``then``).

    On removal ``leaving`` runs before the step's changes are undone, and ``left`` after that. ``leftover`` plans the
    changes that a removal needs in addition.
    """

    name: str
    plan: Plan
    then: tuple[Command, ...] = ()
    leaving: tuple[Command, ...] = ()
    left: tuple[Command, ...] = ()
    leftover: Plan = lambda _: ()


@dataclass(frozen=True, slots=True)
class Choices:
    """The operator's choices, and the inputs of an installation.

    ``release`` names the folder of the runtime or virtual environment. ``runtime`` is the folder from which the runtime
    is copied, empty for a virtual environment, which needs ``wheelhouse`` and ``python``. ``forwarder`` is the
    executable's text, ``units`` are the units' texts by name, and ``plugin`` is mooring-cni's own entry in the chain.
    ``restarts_shim``: restart the shim, because it may not support a hand-over. ``failed_shim`` is `bypass` or `wait`.
    ``bypassed``: the kubelet uses the runtime directly until `bypass off`, whatever else is installed. ``folder`` holds
    the releases.
    """

    release: str
    requirement: str
    wheelhouse: str
    python: str
    node_name: str
    forwarder: str
    units: Mapping[str, str]
    plugin: Mapping[str, Any] = field(default_factory=dict)
    network: str = "chain"
    advertiser: str = "daemonset"
    await_init: bool = False
    vf_names: str = "udev"
    kubelet_config: str = ""
    restarts_shim: bool = False
    failed_shim: str = "bypass"
    bypassed: bool = False
    runtime: str = ""
    folder: str = HOME

    @property
    def release_folder(self) -> str:
        return f"{self.folder}/versions/{self.release}"

    @property
    def current(self) -> str:
        """The link that makes a release the current one."""
        return f"{self.folder}/current"

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths of an installation below its folder."""
        beside = (f"{self.folder}/{name}" for name in ("bin", *_BESIDE))
        return (f"{self.release_folder}/{COMPLETE}", self.current, *beside)


@dataclass(frozen=True, slots=True)
class Sockets:
    """The runtime's socket, and the shim's socket, which the kubelet uses instead."""

    runtime: str
    listen: str

    @property
    def unit(self) -> str:
        return "crio.service" if self.listen == LISTEN_CRIO else "containerd.service"


def sockets(host: Host, choices: Choices) -> Sockets:
    """Return both sockets."""
    told = runtime_socket(host, choices.kubelet_config)
    crio = posixpath.basename(told) == "crio.sock"
    return Sockets(told, LISTEN_CRIO if crio else LISTEN)


def runtime_socket(host: Host, kubelet_config: str) -> str:
    """Return the runtime's socket: the kubelet's configured one, or the one that an earlier run recorded."""
    told = kubelet.endpoint(host, kubelet_config)
    if told is None or told in OURS:
        return str(settings.value(settings.read(host), "mooring-cri-shim", "runtime") or kubelet.CONTAINERD)
    return told


def forwarder_path(cni: CniFolders) -> str:
    """Return the path of the executable that the runtime calls."""
    return f"{cni.bin}/{PLUGIN}"


def steps(host: Host, choices: Choices) -> list[Step]:
    """Return all steps that install ``choices`` on ``host``."""
    ways = sockets(host, choices)
    served = tuple(services(choices))
    restarts = tuple(("systemctl", _again(host, choices, name), name) for name in served)
    stops = tuple(("systemctl", "stop", name) for name in reversed(served))
    has_manager = any(path == texts.NETWORK_MANAGER for path, _ in texts.quiet(host))
    manager = (("systemctl", "try-reload-or-restart", "NetworkManager.service"),) if has_manager else ()
    # Do not wait for init: VFs can take minutes, and a PF that fails must not fail the installation. `check` reports
    # it.
    begins = ("systemctl", "--no-block", "start", init_unit.SERVICE)
    had_earlier = any(init_unit.earlier(host))
    ends_earlier = (("systemctl", "stop", init_unit.EARLIER),) if had_earlier else ()
    limits = (_DAEMON_RELOAD, ("systemctl", "try-restart", ways.unit))
    kubelets = (_DAEMON_RELOAD, ("systemctl", "try-restart", "kubelet.service"))
    return [
        Step("environment", lambda seen: _environment(seen, choices), _labels(host, choices.release_folder)),
        Step("quiet", lambda seen: _files(seen, _quiet(seen, choices)), manager, left=manager),
        Step("limits", lambda seen: _files(seen, (texts.memlock(ways.unit),)), limits, left=limits),
        Step(
            SERVICES,
            lambda seen: _programs(seen, choices, ways),
            (*ends_earlier, _DAEMON_RELOAD, *restarts, begins),
            (*stops, ("systemctl", "stop", init_unit.SERVICE)),
            (_DAEMON_RELOAD,),
        ),
        Step(
            "network",
            lambda seen: _network(seen, choices),
            _labels(host, forwarder_path(host.cni)),
            leftover=network.released,
        ),
        Step(
            KUBELET,
            lambda seen: _kubelet(seen, choices, ways),
            kubelets,
            left=kubelets,
            leftover=lambda seen: kubelet.returned(seen, OURS, ways.runtime, choices.kubelet_config),
        ),
        # The last step, because the check would otherwise run before the kubelet is switched to the shim.
        Step(
            "check",
            lambda seen: _placed(seen, [*_unit(_CHECK, choices), *_unit(CHECK_TIMER, choices)]),
            (_DAEMON_RELOAD, ("systemctl", "restart", CHECK_TIMER)),
            (("systemctl", "stop", CHECK_TIMER, _CHECK),),
            (_DAEMON_RELOAD,),
        ),
    ]


def _labels(host: Host, path: str) -> tuple[Command, ...]:
    """Return the command that gives programs the labels of the host's policy: a new file has that of its folder."""
    return (("restorecon", "-R", path),) if has_selinux(host) else ()


def has_selinux(host: Host) -> bool:
    """Return whether SELinux enforces a policy."""
    return (host.text(SELINUX) or "").strip() == "1"


def _quiet(host: Host, choices: Choices) -> Sequence[tuple[str, str]]:
    used = host.used_vfs | texts.excepted(host)
    named = dict(texts.vf_names(host, used)) if choices.vf_names == "kernel" else {}
    return tuple((dict(texts.quiet(host, used)) | named).items())


def services(choices: Choices) -> Iterator[str]:
    """Yield the units that run, in the order of their start: the shim late, and the unit that watches it last."""
    yield init_unit.PATH
    if choices.advertiser == "unit":
        yield "mooring-advertiser.service"
    yield from ("mooring-cni.service", "mooring-cri-shim.service", BYPASS)


def _again(host: Host, choices: Choices, name: str) -> str:
    """Return the systemctl verb that brings a unit's program to the current release: a reload if that drops no call.

    The installed unit shows whether the running process supports a hand-over. A unit that does not run is started.
    """
    hands_over = _TAKES_OVER in (host.text(f"{_UNITS}/{name}") or "")
    return "reload-or-restart" if hands_over and not choices.restarts_shim else "restart"


def _environment(host: Host, choices: Choices) -> list[Change]:
    folder = choices.release_folder
    if host.at(f"{folder}/{COMPLETE}") is not None:
        return []
    if choices.runtime:
        return [RuntimeCopy(folder, choices.runtime, host.missing_folder(folder))]
    return [VenvBuild(folder, choices.requirement, choices.wheelhouse, choices.python, host.missing_folder(folder))]


def _programs(host: Host, choices: Choices, ways: Sockets) -> list[Change]:
    """Plan configuration and units, and last the link that makes a release the current one."""
    shim = {"listen": ways.listen, "runtime": ways.runtime}
    wanted: dict[str, Any] = {"node_name": choices.node_name, "mooring-cri-shim": shim}
    plugin: dict[str, Any] = {"await_init": True} if choices.await_init else {}
    if host.cni.conf != CniFolders().conf:
        plugin["chains"] = host.cni.conf
    if plugin:
        wanted["mooring-cni"] = plugin
    chosen = {"advertiser": choices.advertiser, "network": choices.network}
    if choices.kubelet_config:
        chosen["kubelet_config"] = choices.kubelet_config
    chosen |= {"folder": choices.folder} if choices.folder != HOME else {}
    chosen |= {"vf_names": "kernel"} if choices.vf_names == "kernel" else {}
    wanted["mooring-node"] = chosen | ({"failed_shim": "wait"} if choices.failed_shim == "wait" else {})
    states: list[tuple[str, State]] = []
    for name in (init_unit.SERVICE, *services(choices)):
        states += _unit(name, choices if name != BYPASS else _with_sockets(choices, ways))
    states += [*init_unit.earlier(host), init_unit.rules()]
    # A virtual environment's Python finds its packages beside bin; all three point to the one link that is replaced.
    beside = () if choices.runtime else _BESIDE
    states += [(f"{choices.folder}/{name}", Link(f"current/{name}")) for name in ("bin", *beside)]
    states.append((choices.current, Link(f"versions/{choices.release}")))
    return [*settings.settle(host, wanted), *_placed(host, states)]


def _unit(name: str, choices: Choices) -> list[tuple[str, State]]:
    """Return the unit's file and the links that enable it."""
    text = choices.units[name].replace(f"{HOME}/", f"{choices.folder}/")
    if name == init_unit.SERVICE:
        text = init_unit.service(text, choices.advertiser)
    elif name == init_unit.PATH:
        text = init_unit.path_unit(text, choices.advertiser)
    links = [(f"{_UNITS}/{target}.wants/{name}", Link(f"../{name}")) for target in _wanting(text)]
    return [(f"{_UNITS}/{name}", File(text)), *links]


def _with_sockets(choices: Choices, ways: Sockets) -> Choices:
    """Write the sockets into the unit that watches the shim, so that it needs no configuration."""
    never = "--never" if choices.failed_shim == "wait" else ""
    text = choices.units[BYPASS].replace("@listen@", ways.listen).replace("@runtime@", ways.runtime)
    return replace(choices, units={BYPASS: text.replace(" @never@", f" {never}".rstrip())})


def _network(host: Host, choices: Choices) -> list[Change]:
    if host.cni.why_unknown:
        raise NodeError(host.cni.why_unknown)
    placed = _placed(host, [(forwarder_path(host.cni), File(choices.forwarder, 0o755))])
    return [*placed, *(network.chain(host, choices.plugin) if choices.network == "chain" else ())]


def _kubelet(host: Host, choices: Choices, ways: Sockets) -> Sequence[Change]:
    return () if choices.bypassed else kubelet.switch(host, ways.listen, choices.kubelet_config)


def _wanting(unit: str) -> list[str]:
    """Return the targets that a unit's [Install] section names."""
    lines = [line.partition("=")[2] for line in unit.splitlines() if line.startswith("WantedBy=")]
    return [target for line in lines for target in line.split()]


def _files(host: Host, files: Sequence[tuple[str, str]]) -> list[Change]:
    return _placed(host, [(path, File(text)) for path, text in files])


def _placed(host: Host, states: Sequence[tuple[str, State]]) -> list[Change]:
    differing = [(path, state) for path, state in states if host.at(path) != state]
    return [PathChange(path, host.at(path), state, host.missing_folder(path)) for path, state in differing]
