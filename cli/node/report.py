"""Report what is missing or altered in a host's installation, for `mooring-node check`."""

import json
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from datetime import datetime
from importlib.metadata import version
from pathlib import Path

from cli.node import bypass as bypasses
from cli.node import journal as journals
from cli.node.errors import NodeError
from cli.node.kubelet_calls import RECENT_S, Seen, judge
from cli.node.look import below
from cli.node.plan import init_unit, network, settings
from cli.node.plan.kubelet import endpoint as kubelet
from cli.node.plan.kubelet.command_line import UNIT
from cli.node.plan.states import Change, Edit, Host, ReleaseFolder
from cli.node.plan.steps import CHECK_TIMER, OURS, Choices, Step, services, sockets, steps
from cli.node.site import Site
from mooring.annotations.inventory import ADVERTISER
from mooring.errors import RecordError
from mooring.files import read_file, read_foreign_file, read_record, write_shared
from mooring.gpu import device_plugins
from mooring.gpu.runtime_files import DEFAULT_RUNTIME, DEFAULT_TOOLKIT, RuntimeFiles
from mooring.records import handed_offer, node_check, shim_bypass, without_devices
from mooring.records.handed_offer import read_init_result
from mooring.records.node_check import Finding, KubeletSocket, NodeCheck, dump_node_check, read_node_check
from mooring.records.run_folder import ADVERTISER_VERSION, VERSIONS

_RUN = "/run/mooring"
_ON = "the bypass is on"
_NOT_SEEN = f"the shim has received no call from the kubelet for {RECENT_S:.0f} s: run systemctl restart {UNIT}"
_NOT_YET = "the shim has received no call from the kubelet yet"
_LONGEST_VERSION = 4096
# Bytes; the kubelet's checkpoint contains the device allocations of all pods.
_LONGEST_CHECKPOINT = 16 << 20


def findings(site: Site, choices: Choices) -> Iterator[Finding]:
    """Check every part of an installation; change nothing."""
    journal = journals.read(site.root)
    if journal is None:
        yield Finding("journal", journals.FILE, "missing: Mooring is not installed on this node")
    elif journal.open is not None:
        yield Finding("journal", journals.FILE, "a run was killed: run install or upgrade again, or run undo")
    # VFs that the host uses only since the installation are excepted by the next installation.
    host = replace(site.look(choices), used_vfs=frozenset())
    for step in steps(host, choices):
        try:
            yield from (_difference(step, change) for change in step.plan(host))
        except NodeError as wrong:
            yield Finding(step.name, "", str(wrong))
    yield from (Finding("network", path, problem) for path, problem in network.problems(host))
    yield from _bypass(site.root, host, choices)
    yield from _failed_shim(site.root)
    yield from _calls(site, host, choices)
    yield from _without_devices(site.root)
    yield from _gpus(site.root, host)
    if site.root == Path("/"):
        yield from _running(choices)


def leave_report(site: Site, choices: Choices, found: Sequence[Finding], now: datetime) -> bool:
    """Write the findings for the advertiser; return whether they have changed."""
    path = below(site.root, f"{_RUN}/{node_check.NAME}")
    socket, why = _kubelet_socket(site, choices)
    report = NodeCheck(now, socket, why, tuple(found))
    try:
        before = read_node_check(read_file(path) or "")
    except (RecordError, OSError):
        before = None
    written = dump_node_check(report)
    write_shared(path, written)
    return before is None or dump_node_check(replace(before, at=now)) != written


def _kubelet_socket(site: Site, choices: Choices) -> tuple[KubeletSocket, str]:
    """Return which socket the kubelet uses and, if it is not the shim's, the evidence.

    The shim's record of calls decides. If that is inconclusive, because the kubelet or the shim has just started or the
    kubelet does not run, the configuration files decide.
    """
    try:
        if (bypass := bypasses.read(site.root)) is not None:
            return "bypass", f"{_ON} since {bypass.since}"
        host = site.look(choices)
        if (seen := _seen(site.root, host)) == "recent":
            return "shim", ""
        past = _past_shim(host, choices)
    except (NodeError, OSError) as unknown:
        return "unknown", str(unknown)
    if past or seen == "none":
        return "runtime", past or _NOT_SEEN
    return "shim", _NOT_YET if seen == "awaited" else ""


def _past_shim(host: Host, choices: Choices) -> str:
    """Return a finding about the file that sets another socket than the shim's, empty if none does; raise NodeError."""
    listen = sockets(host, choices).listen
    # kubeadm's own file is only for its next upgrade; the kubelet does not read it.
    past = [one for one in kubelet.switch(host, listen, choices.kubelet_config) if one.path != kubelet.INSTANCE]
    told = kubelet.endpoint(host, choices.kubelet_config)
    return f"{past[0].path}: the kubelet is configured with {told or 'no socket'}, not {listen}" if past else ""


def _seen(root: Path, host: Host) -> Seen:
    """Return whether the shim has received calls of the kubelet; unknown while a failed shim is bypassed."""
    return "unknown" if below(root, f"{_RUN}/{shim_bypass.NAME}").exists() else judge(root, host.kubelet)


def _calls(site: Site, host: Host, choices: Choices) -> Iterator[Finding]:
    """Report a kubelet that does not call the shim, or whose arguments will change at its next start."""
    try:
        bypassed = bypasses.read(site.root) is not None
        differs = kubelet.difference(host, choices.kubelet_config)
    except NodeError:
        # The bypass or the kubelet's step reports it.
        return
    if differs:
        yield Finding("kubelet", UNIT, differs)
    if not bypassed and _seen(site.root, host) == "none":
        yield Finding("kubelet", UNIT, _NOT_SEEN)


def _bypass(root: Path, host: Host, choices: Choices) -> Iterator[Finding]:
    """Report a bypass that is on, incomplete, or contradicted by the kubelet's files."""
    try:
        bypass = bypasses.read(root)
    except NodeError as wrong:
        yield Finding("kubelet", "", str(wrong))
        return
    if bypass is None:
        return
    if bypass.state == "on":
        yield Finding("kubelet", bypasses.FILE, f"{_ON} since {bypass.since}: run mooring-node bypass off to end it")
    else:
        word = bypass.state.removeprefix("turning ")
        yield Finding(
            "kubelet", bypasses.FILE, f"turning the bypass {word} was interrupted: run mooring-node bypass {word}"
        )
    runtime = sockets(host, choices).runtime
    for change in kubelet.returned(host, OURS, runtime, choices.kubelet_config) if bypass.state == "on" else ():
        yield Finding("kubelet", change.path, "names the shim although the bypass is on: run mooring-node bypass on")


def as_json(found: Sequence[Finding]) -> str:
    """Return the findings as one JSON object; ``ok`` is true without findings."""
    return json.dumps(
        {"ok": not found, "version": version("mooring"), "findings": [asdict(finding) for finding in found]}
    )


def _difference(step: Step, change: Change) -> Finding:
    if isinstance(change, ReleaseFolder):
        return Finding(step.name, change.folder, "missing")
    if isinstance(change, Edit):
        return Finding(step.name, change.path, f"does not contain {change.new.strip()!r}")
    return Finding(step.name, change.path, "missing" if change.before is None else "altered")


def _init() -> Iterator[Finding]:
    """Report why VFs of this node could not be made, from the result of the last run of `init`."""
    asked = subprocess.run(["systemctl", "is-failed", init_unit.SERVICE], capture_output=True, text=True, check=False)
    if asked.returncode != 0:
        return
    try:
        text = read_file(below(Path("/"), f"{_RUN}/{handed_offer.RESULT}"))
        failures = read_init_result(text).failures if text is not None else ()
    except (RecordError, OSError):
        failures = ()
    yield from (Finding("services", init_unit.SERVICE, why) for why in failures or ("failed: see its log",))


def _version(program: str) -> str:
    """Return the version that a program has recorded; the advertiser's is in a separate folder."""
    paths = (f"{_RUN}/{VERSIONS}/{program}", *([f"{_RUN}/{ADVERTISER_VERSION}"] if program == ADVERTISER else []))
    found = (read_foreign_file(below(Path("/"), path), _LONGEST_VERSION) for path in paths)
    return next((text.strip() for text in reversed([*found]) if text is not None), "")


def _failed_shim(root: Path) -> Iterator[Finding]:
    """Report that mooring-shim-bypass bypasses the shim, with its reason."""
    name = f"{_RUN}/{shim_bypass.NAME}"
    try:
        text = read_record(below(root, name))
        found = None if text is None else shim_bypass.read_shim_bypass(text)
    except (RecordError, OSError) as unreadable:
        yield Finding("shim", name, str(unreadable))
        return
    if found is not None:
        yield Finding("shim", name, f"bypassed since {found.since}: {found.why}")


def _without_devices(root: Path) -> Iterator[Finding]:
    """Report the containers without devices that the shim's last check has found."""
    name = f"{_RUN}/{without_devices.NAME}"
    try:
        text = read_file(below(root, name))
        found = without_devices.read_without_devices(text) if text is not None else ()
    except (RecordError, OSError) as unreadable:
        yield Finding("containers", name, str(unreadable))
        return
    for finding in sorted(found):
        then = "the shim stops it" if finding.stopped else "delete the pod"
        what = f"runs without the devices of {finding.summary}: {then}"
        yield Finding("containers", f"{finding.pod} {finding.container}", what)


def _gpus(root: Path, host: Host) -> Iterator[Finding]:
    """Report why no GPU of this host is on offer, if GPUs should be."""
    try:
        document = settings.read(host)
    except NodeError:
        # A step has reported it.
        return
    if settings.value(document, ADVERTISER, "gpus") is not True:
        return
    named = settings.value(document, ADVERTISER, "runtime_config") or DEFAULT_RUNTIME
    toolkit = settings.value(document, ADVERTISER, "nvidia_runtime_config") or DEFAULT_TOOLKIT
    paths = tuple(below(root, path, through=True) for path in filter(None, str(named).split(":")))
    if why := RuntimeFiles(paths, below(root, str(toolkit), through=True), root).exposure_reason():
        yield Finding("gpus", str(toolkit), why)
    if why := _device_plugins(root):
        yield Finding("gpus", device_plugins.CHECKPOINT, why)


def _device_plugins(root: Path) -> str:
    """Return that a device plugin also advertises this host's GPUs, or why that is unknown; empty if none does."""
    try:
        text = read_foreign_file(below(root, device_plugins.CHECKPOINT), _LONGEST_CHECKPOINT)
        return device_plugins.conflict(device_plugins.registered_resources(text)) if text is not None else ""
    except (ValueError, OSError) as unreadable:
        return f"cannot be read: {unreadable}"


def _running(choices: Choices) -> Iterator[Finding]:
    """Report services that do not run, and programs that run another version than the installed one."""
    for unit in (*services(choices), CHECK_TIMER):
        asked = subprocess.run(["systemctl", "is-active", unit], capture_output=True, text=True, check=False)
        if asked.returncode != 0:
            yield Finding("services", unit, asked.stdout.strip() or "unknown to systemd")
    yield from _init()
    for program in ("mooring-cni", "mooring-cri-shim", "mooring-advertiser"):
        running = _version(program)
        if running and running != version("mooring"):
            yield Finding("services", program, f"runs version {running}, but {version('mooring')} is installed")
