"""The options of mooring-node, and what an installation does with them."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from platform import node as host_name
from typing import Any

from cli.node import bypass, runtime
from cli.node.errors import NodeError
from cli.node.look import below, state_of
from cli.node.plan import cni_folder, settings, steps
from cli.node.plan.states import Link
from cni.forwarder import render
from mooring.files import read_file
from mooring.names import is_subdomain
from mooring.parsing import decode
from mooring.program.config import ConfigError, load, option

PROGRAM = "mooring-node"
HARDWARE_TEST = "hardware-test"
FLEET = "fleet"
BYPASS_ON, BYPASS_OFF = "bypass on", "bypass off"
COMMANDS = ("install", "upgrade", "remove", "undo", "check", BYPASS_ON, BYPASS_OFF, HARDWARE_TEST, FLEET)
_WORDS = {
    "advertiser": ("daemonset", "unit"),
    "network": ("chain", "none"),
    "vf_names": ("udev", "kernel"),
    "failed_shim": ("bypass", "wait"),
    "output": ("table", "json"),
}
_SERVER = "/run/mooring/cni.sock"
WHEELHOUSE, ROOT = Path("wheelhouse"), Path("/")
_PLUGIN = Path("/etc/mooring/cni.json")


@dataclass(frozen=True, slots=True)
class Options:
    """Set up this host: install, upgrade, remove; undo a run that was killed; check what is missing or altered.

    bypass on connects the kubelet to the runtime directly, bypass off to the shim again.
    """

    wheelhouse: Path = option(WHEELHOUSE, "folder of wheels to install from by this host's Python, without a runtime")
    bundle: str = option("", "archive of a release's runtime; if empty: the runtime of this program")
    bundle_sha256: str = option("", "SHA-256 that the archive must have, from the release's SHA256SUMS")
    node_name: str = option("", "name of this node's Node object; if empty: the host name in lower case")
    root: Path = option(ROOT, "the host's root folder; if it is not /, no commands are run")
    dry_run: bool = option(False, "print what would be done, and do nothing")
    folder: Path = option(Path(steps.HOME), "folder of the installed programs; it must allow execution")
    advertiser: str = option(
        "daemonset", "how the advertiser runs: daemonset (deployed separately) or unit (on the host)"
    )
    network: str = option(
        "chain", "chain: add mooring-cni to the cluster's network configuration; none: leave it alone"
    )
    plugin: Path = option(_PLUGIN, "JSON file with mooring-cni's own fields in the chain: ipam, networks, ...")
    await_init: bool = option(False, "let pods with VFs wait until mooring-advertiser init has made this node's VFs")
    vf_names: str = option(
        "udev", "udev: udev's rules name VFs and their RDMA devices; kernel: they keep the kernel's names"
    )
    failed_shim: str = option(
        "bypass",
        "bypass: bypass a shim that has not served for 15 s until it does; wait: no container starts without it",
    )
    kubelet_config: str = option("", "the kubelet's configuration file, if its command line names none")
    kubeconfig: str = option("", "kubeconfig to read the admission policies with; if empty: the kubelet's")
    without_guard: bool = option(False, "install even if admission policies are missing or not enforced")
    python: str = option("", "with --wheelhouse: Python interpreter of the programs; if empty: this program's own")
    force: bool = option(False, "remove, or turn the bypass on, even if pods have VFs")
    report: bool = option(
        False, "check: also write the findings for the advertiser, and exit with status 0 (for the timer)"
    )
    output: str = option("table", "output format of check: table or json", short="o")


def read_options(arguments: Sequence[str], environment: Mapping[str, str]) -> tuple[str, Options]:
    """Read command and options, also from the configuration file of the host that is changed."""
    command, options = load(Options, PROGRAM, arguments, environment, COMMANDS)
    own = below(options.root, settings.PATH)
    if options.root != ROOT and own.exists():
        _, options = load(Options, PROGRAM, ["--config", str(own), *arguments], environment, COMMANDS)
    for name, words in _WORDS.items():
        if getattr(options, name) not in words:
            raise ConfigError(
                f"option {name} of {PROGRAM}: {getattr(options, name)!r} is not one of {', '.join(words)}"
            )
    if not (path := options.folder).is_absolute() or ".." in path.parts or any(map(str.isspace, str(path))):
        raise ConfigError(f"option folder of {PROGRAM}: {str(path)!r} is not an absolute path without spaces")
    if not is_subdomain(name := options.node_name or host_name().lower()):
        raise ConfigError(f"option node_name of {PROGRAM}: {name!r} is not a node name (at most 253 of a-z 0-9 . -)")
    return str(command), options


def choose(
    options: Options, release: str, folder: Path | None = None, *, bypassed: bool | None = None
) -> steps.Choices:
    """Return the choices for a release that is installed from the runtime ``folder`` or, without one, a wheelhouse.

    Without ``folder`` the release may also be installed already, from the runtime of this program.
    """
    folder = folder or (runtime.around(sys.prefix) if not options.python else None)
    python = options.python or str(Path(sys.executable).resolve())
    command = (python,) if folder is None else runtime.interpreter(f"{options.folder}/versions/{release}")
    # The script names its release's interpreter, so an upgrade does not affect a running call.
    fallback = [f"{options.folder}/bin/{cni_folder.PLUGIN}"]
    units = {path.name: path.read_text() for path in resources.files("cli.node").joinpath("units").iterdir()}
    return steps.Choices(
        release=release,
        # The extra `advertiser` is for init.
        requirement="mooring[advertiser,cni,cri-shim]",
        wheelhouse=str(options.wheelhouse.absolute()),
        python=python,
        node_name=options.node_name or host_name().lower(),
        forwarder=render(_SERVER, fallback, command),
        units=units,
        plugin=_plugin(options),
        network=options.network,
        advertiser=options.advertiser,
        await_init=options.await_init,
        vf_names=options.vf_names,
        failed_shim=options.failed_shim,
        kubelet_config=options.kubelet_config,
        bypassed=bypass.read(options.root.absolute()) is not None if bypassed is None else bypassed,
        folder=str(options.folder),
        runtime="" if folder is None else str(folder.absolute()),
    )


def _plugin(options: Options) -> dict[str, Any]:
    path = below(options.root, str(options.plugin)) if options.plugin == _PLUGIN else options.plugin
    if not path.exists() and options.plugin == _PLUGIN:
        return {}
    try:
        document = decode(read_file(path) or "")
    except (OSError, ValueError) as wrong:
        raise NodeError(f"plugin file {str(path)!r} cannot be read: {wrong}") from wrong
    if not isinstance(document, dict):
        raise NodeError(f"plugin file {str(path)!r} is not a JSON object")
    if not isinstance(document.get("capabilities", {}), dict):
        raise NodeError(f"plugin file {str(path)!r}: 'capabilities' is {document['capabilities']!r}, not an object")
    return document


def current_release(options: Options) -> str | None:
    """Return the current release, None if nothing is installed."""
    link = state_of(options.root.absolute(), f"{options.folder}/current")
    return Path(link.target).name if isinstance(link, Link) else None
