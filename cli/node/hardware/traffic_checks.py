"""The checks with traffic: two free VFs in pods, four for shares; DEL restores all that is set on the PF meanwhile."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from cli.node.hardware import traffic
from cli.node.hardware.commands import CommandError
from cli.node.hardware.plan.checks import Answer
from cli.node.hardware.plan.rates import rate_fault
from cli.node.hardware.pods import pod, refusal
from cli.node.hardware.traffic import Endpoint
from cli.node.hardware.vf_life import LOCK_S, Subject, Tell
from mooring.locks import hold_all
from mooring.nic.settings import VfSettings

_PAIR, _PAIRS = 2, 4
_VLAN = 100
_SHARES = (1, 3)
# All senders' min rates together are a quarter of the line rate and more: 2 * (1 + 3) / 16.
_SHARE_OF = 16


@dataclass(frozen=True, slots=True)
class Load:
    """How traffic is measured: the limits in Mb/s, and about how long each run lasts in seconds."""

    limits_mbps: tuple[int, ...]
    seconds: float


def measure(subjects: Sequence[Subject], load: Load, tell: Tell) -> None:
    """Tell what traffic shows; whatever fails, the VFs are given back."""
    if len(subjects) < _PAIR:
        tell(Answer("traffic.free", "differs", {}, "traffic needs two VFs that nobody uses"))
        return
    try:
        with ExitStack() as stack:
            ends = [_end(stack, subject, number, load) for number, subject in enumerate(subjects)]
            # With their locks held the node's own repairs leave the VFs alone.
            with hold_all(subjects[0].target.run, [subject.vf.pci for subject in subjects], LOCK_S):
                _measure_rates(subjects, ends, load, tell)
                _measure_shares(subjects, ends, load, tell)
                _measure_isolation(subjects, ends, tell)
    except (CommandError, OSError) as failed:
        why = refusal(failed) if isinstance(failed, CommandError) else str(failed)
        tell(Answer("traffic.free", "differs", {}, why))


def _end(stack: ExitStack, subject: Subject, number: int, load: Load) -> Endpoint:
    """Attach a VF with all settings that are changed later, so that its ledger entry has them."""
    values: dict[str, object] = {
        "mac": f"02:6d:6f:00:01:{number:02x}",
        "vlan": 0,
        "qos": 0,
        "min_tx_rate": 0,
        "max_tx_rate": load.limits_mbps[0],
        "spoofchk": True,
    }
    known = {name: value for name, value in values.items() if name in subject.target.pf.can}
    made = stack.enter_context(pod(number, subject.assigned(VfSettings(**known)), subject.folders))  # type: ignore[arg-type]
    return traffic.endpoint(made, number)


def _measure_rates(subjects: Sequence[Subject], ends: Sequence[Endpoint], load: Load, tell: Tell) -> None:
    """Measure without a limit, then at each limit."""
    can_limit = "max_tx_rate" in subjects[0].target.pf.can
    runs, faults = [], []
    for limit in (None, *load.limits_mbps) if can_limit else (None,):
        if can_limit:
            for subject in subjects[:_PAIR]:
                subject.write(VfSettings(min_tx_rate=0, max_tx_rate=limit or 0))
        mbps = traffic.measured_mbps(ends[0], ends[1], limit, load.seconds)
        fault = rate_fault(limit, mbps, load.limits_mbps)
        if limit is None:
            tell(Answer("traffic.free", "differs" if fault else "ok", {"mbps": mbps}, fault or ""))
            continue
        runs.append({"max_tx_rate": limit, "mbps": mbps})
        faults += [f"{limit}: {fault}"] if fault else []
    if runs:
        tell(Answer("traffic.max-rate", "differs" if faults else "ok", {"runs": runs}, "; ".join(faults)))


def _measure_shares(subjects: Sequence[Subject], ends: Sequence[Endpoint], load: Load, tell: Tell) -> None:
    pf = subjects[0].target.pf
    if len(subjects) < _PAIRS or "min_tx_rate" not in pf.can or not pf.mbps:
        why = "it needs four free VFs, a known line rate and min_tx_rate"
        tell(Answer("traffic.min-rate", "not asked", {}, why))
        return
    unit = max(pf.mbps // _SHARE_OF, 1)
    for number, subject in enumerate(subjects[:_PAIRS]):
        subject.write(VfSettings(min_tx_rate=unit * _SHARES[number // _PAIR], max_tx_rate=0))
    mbps = traffic.measured_together([(ends[0], ends[1]), (ends[2], ends[3])], load.seconds)
    tell(Answer("traffic.min-rate", "told", {"min_tx_rate": [unit * share for share in _SHARES], "mbps": mbps}))


def _measure_isolation(subjects: Sequence[Subject], ends: Sequence[Endpoint], tell: Tell) -> None:
    first, can = subjects[0], subjects[0].target.pf.can
    for subject in subjects[:_PAIR] if "max_tx_rate" in can else ():
        subject.write(VfSettings(min_tx_rate=0, max_tx_rate=0))
    if "spoofchk" in can:
        first.write(VfSettings(spoofchk=False))
        off = traffic.foreign_frames_pass(ends[0], ends[1])
        first.write(VfSettings(spoofchk=True))
        on = traffic.foreign_frames_pass(ends[0], ends[1])
        why = "spoofchk lets frames with a foreign MAC pass" if on else ""
        tell(Answer("traffic.spoofchk", "differs" if on else "ok", {"passes-off": off, "passes-on": on}, why))
    if "vlan" in can:
        without = traffic.udp_passes(ends[0], ends[1])
        first.write(VfSettings(vlan=_VLAN, qos=0))
        one = traffic.udp_passes(ends[0], ends[1])
        ok = without and not one
        why = "" if ok else "the VLAN makes no difference"
        tell(Answer("traffic.vlan", "ok" if ok else "differs", {"passes-without": without, "passes-with": one}, why))
