"""mooring-node: install Mooring's node programs on a host, upgrade, check and remove them; test its NIC."""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from importlib import resources
from pathlib import Path
from platform import node as host_name
from typing import Any

from cli.node import admission_policies, bypass, run, runtime, venv
from cli.node import journal as journals
from cli.node.errors import NodeError
from cli.node.held import holders
from cli.node.look import below, state_of
from cli.node.mounts import refuse_label, refuse_mounts
from cli.node.plan import cni_folder, network, settings, steps
from cli.node.plan.states import Edit, Link, PathChange
from cli.node.report import as_json, findings, leave_report
from cli.node.site import Site
from cni.forwarder import render
from mooring.names import is_subdomain
from mooring.parsing import decode
from mooring.program.config import ConfigError, load, option
from mooring.records.node_check import Finding

PROGRAM = "mooring-node"
HARDWARE_TEST = "hardware-test"
FLEET = "fleet"
BYPASS_ON, BYPASS_OFF = "bypass on", "bypass off"
COMMANDS = ("install", "upgrade", "remove", "undo", "check", BYPASS_ON, BYPASS_OFF, HARDWARE_TEST, FLEET)
# The longest duration of a run; an older open journal belongs to a run that was killed.
_LONGEST_RUN = timedelta(minutes=15)
_WORDS = {
    "advertiser": ("daemonset", "unit"),
    "network": ("chain", "none"),
    "vf_names": ("udev", "kernel"),
    "failed_shim": ("bypass", "wait"),
    "output": ("table", "json"),
}
_SERVER = "/run/mooring/cni.sock"
_WHEELHOUSE = Path("wheelhouse")
_ROOT, _PLUGIN = Path("/"), Path("/etc/mooring/cni.json")


@dataclass(frozen=True, slots=True)
class Options:
    """Set up this host: install, upgrade, remove; undo a run that was killed; check what is missing or altered.

    bypass on connects the kubelet to the runtime directly, bypass off to the shim again.
    """

    wheelhouse: Path = option(_WHEELHOUSE, "folder of wheels to install from by this host's Python, without a runtime")
    bundle: str = option("", "archive of a release's runtime; if empty: the runtime of this program")
    bundle_sha256: str = option("", "SHA-256 that the archive must have, from the release's SHA256SUMS")
    node_name: str = option("", "name of this node's Node object; if empty: the host name in lower case")
    root: Path = option(_ROOT, "the host's root folder; if it is not /, no commands are run")
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


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; return its exit status: 0, 1 failure or findings, 2 usage."""
    arguments = sys.argv[1:] if argv is None else argv
    if HARDWARE_TEST in arguments:
        return _hardware_test(arguments)
    if arguments[:1] == [FLEET]:
        return _fleet(arguments)
    try:
        command, options = _load(arguments)
    except ConfigError as wrong:
        print(f"{PROGRAM}: {wrong}", file=sys.stderr)
        return 2
    try:
        return _do(command, options)
    except (NodeError, OSError, subprocess.SubprocessError) as failed:
        print(f"{PROGRAM}: {failed}", file=sys.stderr)
        return 1


def _hardware_test(arguments: Sequence[str]) -> int:
    """Run the test of the NIC, which needs what the advertiser and the CNI plugin need."""
    try:
        # Imported here, because an installation does not need these packages.
        from cli.node.hardware import run as hardware
    except ImportError as missing:
        print(f"{PROGRAM}: {missing}: install mooring[advertiser,cni] in the same environment", file=sys.stderr)
        return 2
    try:
        _, options = load(hardware.Options, PROGRAM, arguments, os.environ, COMMANDS)
        return hardware.main(options)
    except ConfigError as wrong:
        print(f"{PROGRAM}: {wrong}", file=sys.stderr)
        return 2
    except (NodeError, OSError, subprocess.SubprocessError) as failed:
        print(f"{PROGRAM}: {failed}", file=sys.stderr)
        return 2


def _fleet(arguments: Sequence[str]) -> int:
    """Install this node in turn with others, which needs a client of the API server."""
    try:
        from cli.node.fleet import commands as fleet
    except ImportError as missing:
        print(f"{PROGRAM}: {missing}: install mooring[advertiser] in the same environment", file=sys.stderr)
        return 2
    try:
        _, options = load(fleet.Options, PROGRAM, arguments, os.environ, COMMANDS)
        return fleet.main(PROGRAM, options)
    except ConfigError as wrong:
        print(f"{PROGRAM}: {wrong}", file=sys.stderr)
        return 2
    except (NodeError, OSError) as failed:
        print(f"{PROGRAM}: {failed}", file=sys.stderr)
        return 1


def _load(arguments: Sequence[str]) -> tuple[str, Options]:
    """Read command and options, also from the configuration file of the host that is changed."""
    command, options = load(Options, PROGRAM, arguments, os.environ, COMMANDS)
    own = below(options.root, settings.PATH)
    if options.root != _ROOT and own.exists():
        _, options = load(Options, PROGRAM, ["--config", str(own), *arguments], os.environ, COMMANDS)
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


def _do(command: str, options: Options) -> int:
    site = Site(options.root.absolute(), _say)
    if command == "check":
        return _check(site, options)
    if command in ("install", "upgrade"):
        with _runtime(options) as folder:
            return _install(command, site, options, folder)
    choices = _choices(options, _present(options) or "none")
    if command in (BYPASS_ON, BYPASS_OFF):
        return _bypass(command, site, options, choices)
    # A run that was killed may have replaced the unit of a shim that still runs.
    choices = replace(choices, restarts_shim=True)
    if command == "remove" and not options.force and (held := holders(site.root)):
        raise NodeError(f"pods of this node have VFs ({', '.join(held[:5])}): drain the node first, or use --force")
    if options.dry_run:
        for step, words in run.planned_removal(site, choices, whole=command == "remove"):
            _say(step, f"would {words}")
        return 0
    taken = run.remove(site, choices) if command == "remove" else run.take_back(site, choices)
    _say(command, "done" if taken else "nothing to do")
    return 0


@contextmanager
def _runtime(options: Options) -> Iterator[Path | None]:
    """Yield the folder of the runtime to install, None for a wheelhouse."""
    own = runtime.around(sys.prefix)
    if options.bundle:
        if options.wheelhouse != _WHEELHOUSE:
            raise NodeError(
                f"option bundle: {options.bundle!r} and wheelhouse {str(options.wheelhouse)!r} exclude each other"
            )
        with runtime.unpacked(Path(options.bundle), options.bundle_sha256) as folder:
            yield folder
    elif options.wheelhouse == _WHEELHOUSE:
        yield own
    elif own is not None and not options.python:
        raise NodeError(
            f"option wheelhouse: {str(options.wheelhouse)!r} needs a Python of this host: name it with --python"
        )
    else:
        yield None


def _install(command: str, site: Site, options: Options, folder: Path | None) -> int:
    if folder is None:
        choices = _choices(options, venv.release_of(options.wheelhouse))
    else:
        choices = _choices(options, runtime.read_release(folder).name, folder)
    _check_admission_policies(command, options)
    journal, present = journals.read(site.root), _present(options)
    if journal is None or journal.open is None:
        if command == "upgrade" and present is None:
            raise NodeError("Mooring is not installed on this node: run mooring-node install")
        if command == "install" and present not in (None, choices.release):
            raise NodeError(f"release {present!r} is installed: run mooring-node upgrade")
    _refuse_folders(site, choices)
    for text in network.advice(site.look(choices)) if choices.network == "chain" else ():
        _say("network", text)
    if options.dry_run:
        for step, changes in run.planned(site.look(choices), choices):
            for change in changes:
                _say(step.name, f"would {change}")
            for command_line in step.then if changes else ():
                _say(step.name, f"would run {' '.join(command_line)}")
        return 0
    _say(command, "done" if run.install(site, choices) else "nothing to do")
    return 0


def _refuse_folders(site: Site, choices: steps.Choices) -> None:
    """Raise NodeError if a file of the installation could not be written, or a program not be started."""
    host = site.look(choices)
    changes = [change for _, planned in run.planned(host, choices) for change in planned]
    changed = [change.path for change in changes if isinstance(change, PathChange | Edit)]
    refuse_mounts(site.root, choices.folder, host.cni.bin, changed)
    if steps.has_selinux(host) and site.root == _ROOT:
        refuse_label(choices.folder)


def _check_admission_policies(command: str, options: Options) -> None:
    """Print the problems of the admission policies; raise NodeError if an installation lacks required ones."""
    states = admission_policies.read_policies(_kubeconfig(options))
    absent = {name: one.why for name, one in states.items() if one.state in ("missing", "unbound")}
    for name, why in absent.items():
        _say("guard", f"{name}: {why}")
    if unknown := next((one.why for one in states.values() if one.state == "unknown"), None):
        _say("guard", f"cannot determine whether all admission policies are bound: {unknown}")
    if absent and command == "install" and not (options.without_guard or options.dry_run):
        raise NodeError(
            f"{len(absent)} of {len(states)} admission policies are not enforced, so other users could choose the VFs "
            "of a pod. Run kubectl apply -k manifests/base first, or use --without-guard"
        )


def _kubeconfig(options: Options) -> Path | None:
    """Return the kubeconfig option or, if this host is changed, the kubelet's kubeconfig; None without one."""
    if options.kubeconfig:
        return Path(options.kubeconfig)
    found = (Path(path) for path in admission_policies.KUBECONFIGS) if options.root == _ROOT else ()
    return next((path for path in found if path.exists()), None)


def _bypass(command: str, site: Site, options: Options, choices: steps.Choices) -> int:
    """Turn the bypass on or off.

    Raise NodeError if it is turned on while pods have VFs, unless forced or to complete a run that was killed.
    """
    if command == BYPASS_ON and bypass.read(site.root) is None and (held := holders(site.root)):
        for one in held:
            _say("held", one)
        if not options.force:
            raise NodeError(
                f"pods of this node have {len(held)} VFs, and a container that restarts would lack its devices. "
                "Drain the node first, or use --force"
            )
    if options.dry_run:
        for words in run.planned_bypass(site, choices, on=command == BYPASS_ON):
            _say("kubelet", f"would {words}")
        return 0
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    done = run.bypass_on(site, choices, now) if command == BYPASS_ON else run.bypass_off(site, choices)
    _say("bypass", ("on" if command == BYPASS_ON else "off") if done else "nothing to do")
    return 0


def _check(site: Site, options: Options) -> int:
    choices = _choices(options, _present(options) or "none", bypassed=_known_bypassed(site.root))
    if options.report:
        return _report(site, choices)
    found = list(findings(site, choices))
    if options.output == "json":
        print(as_json(found))
    else:
        _tell(found)
    return 1 if found else 0


def _report(site: Site, choices: steps.Choices) -> int:
    """Write the findings for the advertiser, and print them if they have changed; do nothing during another run."""
    now = datetime.now(UTC)
    if journals.open_since(site.root, now) < _LONGEST_RUN:
        _say("check", "another run of mooring-node is in progress")
        return 0
    try:
        found = list(findings(site, choices))
    except NodeError as wrong:
        found = [Finding("check", "", str(wrong))]
    try:
        is_new = leave_report(site, choices, found, now)
    except OSError as refused:
        _tell(found)
        raise NodeError(f"the findings cannot be written for the advertiser: {refused}") from refused
    if is_new:
        _tell(found)
    return 0


def _tell(found: Sequence[Finding]) -> None:
    for each in found:
        print(f"{each.step:12} {each.subject}: {each.found}" if each.subject else f"{each.step:12} {each.found}")
    print(
        f"{len(found)} finding{'s' * (len(found) > 1)}" if found else "no findings: the installation is intact",
        flush=True,
    )


def _known_bypassed(root: Path) -> bool:
    """Return whether the bypass is on; False if that cannot be read, which the check reports."""
    try:
        return bypass.read(root) is not None
    except NodeError:
        return False


def _choices(
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
        document = decode(path.read_text())
    except (OSError, ValueError) as wrong:
        raise NodeError(f"plugin file {str(path)!r} cannot be read: {wrong}") from wrong
    if not isinstance(document, dict):
        raise NodeError(f"plugin file {str(path)!r} is not a JSON object")
    if not isinstance(document.get("capabilities", {}), dict):
        raise NodeError(f"plugin file {str(path)!r}: 'capabilities' is {document['capabilities']!r}, not an object")
    return document


def _present(options: Options) -> str | None:
    """Return the current release, None if nothing is installed."""
    link = state_of(options.root.absolute(), f"{options.folder}/current")
    return Path(link.target).name if isinstance(link, Link) else None


def _say(step: str, what: str) -> None:
    print(f"{step:12} {what}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
