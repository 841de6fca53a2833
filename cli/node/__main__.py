"""mooring-node: install Mooring's node programs on a host, upgrade, check and remove them; test its NIC."""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cli.node import admission_policies, bypass, run, runtime, venv
from cli.node import journal as journals
from cli.node.errors import NodeError
from cli.node.held import holders
from cli.node.mounts import refuse_label, refuse_mounts
from cli.node.options import (
    BYPASS_OFF,
    BYPASS_ON,
    COMMANDS,
    FLEET,
    HARDWARE_TEST,
    PROGRAM,
    ROOT,
    WHEELHOUSE,
    Options,
    choose,
    current_release,
    read_options,
)
from cli.node.plan import network, steps
from cli.node.plan.states import Edit, PathChange
from cli.node.report import as_json, findings, leave_report
from cli.node.site import Site
from mooring.program.config import ConfigError, load
from mooring.records.node_check import Finding

# The longest duration of a run; an older open journal belongs to a run that was killed.
_LONGEST_RUN = timedelta(minutes=15)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; return its exit status: 0, 1 failure or findings, 2 usage."""
    arguments = sys.argv[1:] if argv is None else argv
    if HARDWARE_TEST in arguments:
        return _hardware_test(arguments)
    if arguments[:1] == [FLEET]:
        return _fleet(arguments)
    try:
        command, options = read_options(arguments, os.environ)
    except ConfigError as wrong:
        print(f"{PROGRAM}: {wrong}", file=sys.stderr)
        return 2
    try:
        return _do(command, options)
    except (NodeError, OSError, subprocess.SubprocessError) as error:
        print(f"{PROGRAM}: {error}", file=sys.stderr)
        return 1


def _hardware_test(arguments: Sequence[str]) -> int:
    """Run the test of the NIC, which needs what the advertiser and the CNI plugin need."""
    try:
        # Imported here, because an installation does not need these packages.
        from cli.node.hardware import run as hardware
    except ImportError as error:
        print(f"{PROGRAM}: {error}: install mooring[advertiser,cni] in the same environment", file=sys.stderr)
        return 2
    try:
        _, options = load(hardware.Options, PROGRAM, arguments, os.environ, COMMANDS)
        return hardware.main(options)
    except ConfigError as wrong:
        print(f"{PROGRAM}: {wrong}", file=sys.stderr)
        return 2
    except (NodeError, OSError, subprocess.SubprocessError) as error:
        print(f"{PROGRAM}: {error}", file=sys.stderr)
        return 2


def _fleet(arguments: Sequence[str]) -> int:
    """Install this node in turn with others, which needs a client of the API server."""
    try:
        from cli.node.fleet import commands as fleet
    except ImportError as error:
        print(f"{PROGRAM}: {error}: install mooring[advertiser] in the same environment", file=sys.stderr)
        return 2
    try:
        _, options = load(fleet.Options, PROGRAM, arguments, os.environ, COMMANDS)
        return fleet.main(PROGRAM, options)
    except ConfigError as wrong:
        print(f"{PROGRAM}: {wrong}", file=sys.stderr)
        return 2
    except (NodeError, OSError) as error:
        print(f"{PROGRAM}: {error}", file=sys.stderr)
        return 1


def _do(command: str, options: Options) -> int:
    site = Site(options.root.absolute(), _say)
    if command == "check":
        return _check(site, options)
    if command in ("install", "upgrade"):
        with _runtime(options) as folder:
            return _install(command, site, options, folder)
    choices = choose(options, current_release(options) or "none")
    if command in (BYPASS_ON, BYPASS_OFF):
        return _bypass(command, site, options, choices)
    # A run that was killed may have replaced the unit of a shim that still runs.
    choices = replace(choices, restarts_shim=True)
    if command == "remove" and not options.force and (held := holders(site.root)):
        raise NodeError(f"pods of this node have VFs ({', '.join(held[:5])}): drain the node first, or use --force")
    if command == "remove" and journals.read(site.root) is None and (release := current_release(options)) is not None:
        raise NodeError(
            f"release {release!r} is installed, but {journals.FILE!r}, which has what its installation changed, is "
            "missing: remove it by hand"
        )
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
        if options.wheelhouse != WHEELHOUSE:
            raise NodeError(
                f"option bundle: {options.bundle!r} and wheelhouse {str(options.wheelhouse)!r} exclude each other"
            )
        with runtime.unpacked(Path(options.bundle), options.bundle_sha256) as folder:
            yield folder
    elif options.wheelhouse == WHEELHOUSE:
        yield own
    elif own is not None and not options.python:
        raise NodeError(
            f"option wheelhouse: {str(options.wheelhouse)!r} needs a Python of this host: name it with --python"
        )
    else:
        yield None


def _install(command: str, site: Site, options: Options, folder: Path | None) -> int:
    if folder is None:
        choices = choose(options, venv.release_of(options.wheelhouse))
    else:
        choices = choose(options, runtime.read_release(folder).name, folder)
    _check_admission_policies(command, options)
    journal, present = journals.read(site.root), current_release(options)
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
    if steps.has_selinux(host) and site.root == ROOT:
        refuse_label(choices.folder)


def _check_admission_policies(command: str, options: Options) -> None:
    """Print the problems of the admission policies; raise NodeError if an installation lacks required ones."""
    states = admission_policies.read_policies(_kubeconfig(options))
    absent = {name: one.why for name, one in states.items() if one.state in ("missing", "unbound")}
    for name, why in absent.items():
        _say("guard", f"{name}: {why}")
    if unknown := next((state.why for state in states.values() if state.state == "unknown"), None):
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
    found = (Path(path) for path in admission_policies.KUBECONFIGS) if options.root == ROOT else ()
    return next((path for path in found if path.exists()), None)


def _bypass(command: str, site: Site, options: Options, choices: steps.Choices) -> int:
    """Turn the bypass on or off.

    Raise NodeError if it is turned on while pods have VFs, unless forced or to complete a run that was killed.
    """
    if command == BYPASS_ON and bypass.read(site.root) is None and (held := holders(site.root)):
        for vf in held:
            _say("held", vf)
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
    choices = choose(options, current_release(options) or "none", bypassed=_known_bypassed(site.root))
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
    except OSError as error:
        _tell(found)
        raise NodeError(f"the findings cannot be written for the advertiser: {error}") from error
    if is_new:
        _tell(found)
    return 0


def _tell(found: Sequence[Finding]) -> None:
    for finding in found:
        print(
            f"{finding.step:12} {finding.subject}: {finding.found}"
            if finding.subject
            else f"{finding.step:12} {finding.found}"
        )
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


def _say(step: str, what: str) -> None:
    print(f"{step:12} {what}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
