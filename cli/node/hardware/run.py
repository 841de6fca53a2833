"""Run the hardware test: the harmless checks, the life of one VF, traffic; then write the report."""

import fcntl
import os
import platform
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from cli.node.errors import NodeError
from cli.node.hardware import host, vf_life, vf_use
from cli.node.hardware.host import Target
from cli.node.hardware.numvfs import temporary_vfs
from cli.node.hardware.peer.address import how_to_reach, listening, peer_address
from cli.node.hardware.peer.channel import new_token
from cli.node.hardware.peer.lend import serve
from cli.node.hardware.peer.remote import Peer
from cli.node.hardware.plan import checks, free_vf, report, stored
from cli.node.hardware.plan.checks import Answer
from cli.node.hardware.pods import Folders, detach_leftovers
from cli.node.hardware.traffic import traffic_checks
from cli.node.hardware.traffic.traffic_checks import Load
from cli.node.hardware.vf_life import Subject
from mooring.annotations.inventory import Pf
from mooring.hardware_folder import keep_result, read_results
from mooring.nic.vf_settings import RtnetlinkVfSettings, VfSettingsSelector
from mooring.program.config import ConfigError, option
from mooring.records.hardware_result import FOLDER, HardwareResult

_LOCK = "hardware-test.lock"
# A person types the command on the other host meanwhile.
_WAIT_S = 900.0
_MOST_VFS = 2 * traffic_checks.MOST_PAIRS


@dataclass(frozen=True, slots=True)
class Options:
    """Find out what this host's NIC does; change nothing unless --vfs is given; write a report to send."""

    pf: str = option("", "netdev of the PF that is tested; without one the first on offer")
    vfs: bool = option(False, "true takes one VF that nobody uses through ADD, settings, a rebind and DEL")
    traffic: bool = option(False, "true sends traffic between VFs that nobody uses; it needs --vfs")
    force: bool = option(False, "true asks the harmless checks also of a PF that is not on offer, which --pf names")
    make_vfs: int = option(0, "makes so many VFs on a PF without any, which --pf names, and removes them at the end")
    rates: str = option("", "limits in Mb/s at which traffic is measured; without them 10 and 40 % of free traffic")
    seconds: int = option(4, "how long each run with traffic counts; it lasts 4 s longer, or 2 s if this is below 3")
    serve: bool = option(False, "true lends two VFs to a test on another host: prints the address and a one-time token")
    listen: str = option(
        ":0", "address and port of --serve; without an address all of this host's, port 0 is a free one"
    )
    peer: str = option("", "address and port that --serve printed on another host: traffic goes to its VFs")
    token: str = option("", "the token that --serve printed there")
    report: Path = option(Path(), "folder in which the report is written, as JSON and as text")
    state: Path = option(Path("/var/lib/mooring"), "folder of pod records and ledger")
    run: Path = option(Path("/run/mooring"), "folder of what lasts until the next boot")


def main(options: Options) -> int:
    """Return the exit status: 0 all is as believed, 1 something differs, 2 something could not be asked.

    Raise ConfigError or NodeError if nothing could be asked.
    """
    load, stages = _load(options), _stages(options)
    if options.serve:
        return _serve(options)
    answers: list[Answer] = []

    def tell(answer: Answer) -> None:
        answers.append(answer)
        print(f"{answer.outcome:9} {answer.check}", file=sys.stderr, flush=True)

    target, stopped = None, False
    with _stoppable():
        try:
            with _make_vfs(options, tell):
                document = host.discover()
                target = _target(options, _pf(options, document, force=options.force))
                for answer in host.ask(target, document):
                    tell(answer)
                if options.vfs:
                    _change(target, options, load, tell)
        except KeyboardInterrupt:
            stopped = True
    if target is None:
        raise NodeError("stopped before anything was asked")
    answers += checks.not_asked(stages, answers, "stopped" if stopped else "not reached")
    answers += checks.not_asked(checks.STAGES, answers, "its flag was not given")
    subject = host.subject_of(target)
    result_report = report.build(subject, answers, _names())
    print(report.as_text(result_report))
    _write(options.report, result_report)
    _keep(target, subject, answers)
    return checks.exit_status(answers, stages)


def _pf(options: Options, document: host.Shown, *, force: bool) -> Pf:
    try:
        return host.find_pf(document, options.pf, force=force)
    except NodeError as unknown:
        raise ConfigError(f"flag --pf: {unknown}") if options.pf else unknown from None


def _target(options: Options, pf: Pf) -> Target:
    settings = VfSettingsSelector(RtnetlinkVfSettings(), Path("/sys"))
    return Target(Path("/"), pf, settings, options.state, options.run, host.addresses_of(pf))


@contextmanager
def _make_vfs(options: Options, tell: vf_life.Tell) -> Iterator[None]:
    """Make the VFs that --make-vfs asks for; remove them at the end, and tell how long it took."""
    if not options.make_vfs:
        if options.vfs:
            tell(Answer("sriov.numvfs", "n/a", {}, "only --make-vfs makes VFs"))
        yield
        return
    pf = _pf(options, host.discover(), force=True)
    with ExitStack() as stack:
        times = stack.enter_context(temporary_vfs(Path("/sys/bus/pci/devices") / pf.pci, options.make_vfs))
        yield
    tell(Answer("sriov.numvfs", "info", times))


def _load(options: Options) -> Load:
    if options.traffic and not options.vfs:
        raise ConfigError("flag --traffic needs --vfs: it takes VFs")
    if options.make_vfs and not (options.vfs and options.pf):
        raise ConfigError("flag --make-vfs needs --vfs and --pf: it changes that PF")
    if (options.vfs or options.serve) and os.geteuid() != 0:
        raise ConfigError("flags --vfs and --serve need root")
    if options.serve and (options.vfs or options.peer):
        raise ConfigError("flag --serve goes without --vfs and --peer: the other host asks")
    if bool(options.peer) != bool(options.token) or (options.peer and not options.traffic):
        raise ConfigError("flags --peer and --token go together, with --vfs and --traffic")
    try:
        limits = tuple(int(word) for word in options.rates.split(",")) if options.rates else ()
    except ValueError:
        limits = (0,)
    if (limits and min(limits) < 1) or options.seconds < 1:
        raise ConfigError(f"option rates: {options.rates!r} is not Mb/s above 0, or seconds is not above 0")
    return Load(limits, options.seconds)


def _stages(options: Options) -> tuple[checks.Stage, ...]:
    return checks.STAGES if options.traffic else checks.STAGES[:2] if options.vfs else checks.STAGES[:1]


def _change(target: Target, options: Options, load: Load, tell: vf_life.Tell) -> None:
    """Ask what takes VFs; give all of them back, whatever happens."""
    with _alone(options.run):
        for name in detach_leftovers(Folders(options.state, options.run)):
            print(f"given back: {name} of an earlier run", file=sys.stderr)
        free = _free(target, tell)
        if free:
            vf_life.live(Subject(target, free[-1]), tell)
        if free and options.traffic:
            subjects = [Subject(target, vf) for vf in free]
            if options.peer:
                lender = Peer(peer_address(options.peer), options.token)
                traffic_checks.measure(subjects[: traffic_checks.MOST_PAIRS], load, lender.receivers, tell)
            else:
                traffic_checks.measure(subjects, load, None, tell)


def _serve(options: Options) -> int:
    """Lend VFs to one test on another host."""
    target = _target(options, _pf(options, host.discover(), force=False))
    with _stoppable(), _alone(options.run), listening(options.listen) as listener:
        detach_leftovers(Folders(options.state, options.run))
        free = free_vf.choose(vf_use.uses(target), traffic_checks.MOST_PAIRS)
        if not free:
            raise NodeError("every VF is in use")
        token = new_token()
        for line in how_to_reach(listener, token):
            print(line, flush=True)
        try:
            serve(
                listener,
                token,
                _WAIT_S,
                lambda count: traffic_checks.lend_vfs([Subject(target, vf) for vf in free[:count]]),
            )
        except KeyboardInterrupt:
            return 2
    return 0


def _keep(target: Target, subject: report.Subject, answers: list[Answer]) -> None:
    """Keep the outcome on this node, where its advertiser shows it."""
    earlier = read_results(target.state / FOLDER).get(target.pf.pci)
    earlier_result = earlier if isinstance(earlier, HardwareResult) else None
    result = stored.result_of(target.pf.pci, subject, answers, datetime.now(UTC), earlier_result)
    if result is not None:
        keep_result(target.state, target.run, result)
        print(f"kept: {target.state / FOLDER / target.pf.pci}.json", file=sys.stderr)


def _free(target: Target, tell: vf_life.Tell) -> tuple[free_vf.VfUse, ...]:
    uses = vf_use.uses(target)
    free = free_vf.choose(uses, _MOST_VFS)
    reasons = {str(vf.index): why for vf in uses if (why := free_vf.why_in_use(vf)) is not None}
    why = "" if free else "every VF is in use"
    tell(Answer("vf.free", "ok" if free else "not asked", {"free": len(uses) - len(reasons), "in-use": reasons}, why))
    return free


@contextmanager
def _alone(run: Path) -> Iterator[None]:
    """Hold the test's lock; raise NodeError if another test runs."""
    run.mkdir(mode=0o755, parents=True, exist_ok=True)
    descriptor = os.open(run / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise NodeError("another hardware-test runs on this host") from None
    finally:
        os.close(descriptor)


@contextmanager
def _stoppable() -> Iterator[None]:
    """Turn the first signal to stop into KeyboardInterrupt; ignore further ones while VFs are given back."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def stop(_number: int, _frame: object) -> None:
        for number in numbers:
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    handlers = {number: signal.signal(number, stop) for number in numbers}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _names() -> set[str]:
    """Return this machine's names, which the report does not have."""
    full = {platform.node(), socket.getfqdn()}
    return {name for name_in_full in full for name in (name_in_full, name_in_full.partition(".")[0])}


def _write(folder: Path, result_report: report.Report) -> None:
    name = report.file_name(result_report.subject)
    for suffix, text in ((".json", report.as_json(result_report)), (".txt", report.as_text(result_report))):
        path = folder / f"{name}{suffix}"
        path.write_text(f"{text}\n")
        print(f"written: {path}", file=sys.stderr)
