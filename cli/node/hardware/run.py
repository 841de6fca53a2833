"""Run the hardware test: the harmless checks, the life of one VF, traffic; then write the report."""

import fcntl
import os
import platform
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cli.node.errors import NodeError
from cli.node.hardware import host, traffic_checks, vf_life, vf_use
from cli.node.hardware.host import Target
from cli.node.hardware.plan import checks, free_vf, report
from cli.node.hardware.plan.checks import Answer
from cli.node.hardware.pods import Folders, detach_leftovers
from cli.node.hardware.traffic_checks import Load
from cli.node.hardware.vf_life import Subject
from mooring.nic.vf_settings import RtnetlinkVfSettings, SettingsWherePfKeepsThem
from mooring.program.config import ConfigError, option

_LOCK = "hardware-test.lock"
_MOST_VFS = 4


@dataclass(frozen=True, slots=True)
class Options:
    """Find out what this host's NIC does; change nothing unless --vfs is given; write a report to send."""

    pf: str = option("", "netdev of the PF that is tested; without one the first on offer")
    vfs: bool = option(False, "true takes one VF that nobody uses through ADD, settings, a rebind and DEL")
    traffic: bool = option(False, "true sends traffic between two VFs that nobody uses; it needs --vfs")
    force: bool = option(False, "true asks the harmless checks also of a PF that is not on offer, which --pf names")
    rates: str = option("1000,5000", "limits in Mb/s at which traffic is measured")
    seconds: float = option(4.0, "about how long each run with traffic lasts")
    report: Path = option(Path(), "folder in which the report is written, as JSON and as text")
    state: Path = option(Path("/var/lib/mooring"), "folder of pod records and ledger")
    run: Path = option(Path("/run/mooring"), "folder of what lasts until the next boot")


def main(options: Options) -> int:
    """Return the exit status: 0 all is as expected, 1 something differs; raise ConfigError or NodeError."""
    load = _load(options)
    shown = host.discover()
    try:
        pf = host.find_pf(shown, options.pf, force=options.force)
    except NodeError as unknown:
        raise ConfigError(f"flag --pf: {unknown}") if options.pf else unknown from None
    settings = SettingsWherePfKeepsThem(RtnetlinkVfSettings(), Path("/sys"))
    target = Target(Path("/"), pf, settings, options.state, options.run)
    answers: list[Answer] = []

    def tell(answer: Answer) -> None:
        answers.append(answer)
        print(f"{answer.outcome:9} {answer.check}", file=sys.stderr, flush=True)

    stopped = False
    with _stoppable():
        try:
            for answer in host.ask(target, shown):
                tell(answer)
            if options.vfs:
                _change(target, options, load, tell)
        except KeyboardInterrupt:
            stopped = True
    missing = checks.not_asked(_stages(options), answers, "stopped" if stopped else "not reached")
    missing += checks.not_asked(checks.STAGES, [*answers, *missing], "its flag was not given")
    written = report.build(host.subject_of(target), [*answers, *missing], _names())
    print(report.as_text(written))
    _write(options.report, written)
    return 1 if stopped or checks.differs(written.answers) else 0


def _load(options: Options) -> Load:
    if options.traffic and not options.vfs:
        raise ConfigError("flag --traffic needs --vfs: it takes VFs")
    if options.vfs and os.geteuid() != 0:
        raise ConfigError("flag --vfs needs root")
    try:
        limits = tuple(int(each) for each in options.rates.split(","))
    except ValueError:
        limits = ()
    if not limits or min(limits) < 1 or options.seconds <= 0:
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
            traffic_checks.measure([Subject(target, vf) for vf in free], load, tell)


def _free(target: Target, tell: vf_life.Tell) -> tuple[free_vf.VfUse, ...]:
    uses = vf_use.uses(target)
    free = free_vf.choose(uses, _MOST_VFS)
    reasons = {str(vf.index): why for vf in uses if (why := free_vf.why_in_use(vf)) is not None}
    why = "" if free else "every VF is in use"
    tell(Answer("vf.free", "ok" if free else "differs", {"free": len(uses) - len(reasons), "in-use": reasons}, why))
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
        for each in numbers:
            signal.signal(each, signal.SIG_IGN)
        raise KeyboardInterrupt

    before = {number: signal.signal(number, stop) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _names() -> set[str]:
    """Return this machine's names, which the report does not have."""
    full = {platform.node(), socket.getfqdn()}
    return {name for each in full for name in (each, each.partition(".")[0])}


def _write(folder: Path, written: report.Report) -> None:
    name = report.file_name(written.subject)
    for suffix, text in ((".json", report.as_json(written)), (".txt", report.as_text(written))):
        path = folder / f"{name}{suffix}"
        path.write_text(f"{text}\n")
        print(f"written: {path}", file=sys.stderr)
