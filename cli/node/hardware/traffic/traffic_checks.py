"""The checks with traffic. DEL restores everything that is set on the PF meanwhile.

On one host the first free VF sends to the second one, and the third to the fourth. With a peer two VFs of this host
send to two of the other host, and so through both ports.
"""

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass

from cli.node.hardware.commands import CommandError
from cli.node.hardware.plan import rates
from cli.node.hardware.plan.checks import Answer
from cli.node.hardware.plan.rates import Shares
from cli.node.hardware.plan.stream import PROGRAM, stream_for
from cli.node.hardware.pods import pod, refusal
from cli.node.hardware.traffic import frames, perftest
from cli.node.hardware.traffic.counters import CounterGrowth, read_counters
from cli.node.hardware.traffic.endpoints import Endpoint, endpoint
from cli.node.hardware.traffic.perftest import LocalReceiver, Pair, Receiver
from cli.node.hardware.vf_life import LOCK_S, Subject, Tell
from cli.node.hardware.vf_use import rdma_of
from mooring.locks import hold_locks
from mooring.nic.settings import VfSettings

MOST_PAIRS = 2
_VLAN = 100
_OBSERVED_LEAST_S = 3
# Known traffic lasts for about a second, and stays below 2 GiB.
_KNOWN_S, _MOST_KNOWN_BYTES, _LEAST_MESSAGES = 1.0, 1 << 31, 8
MISSING = f"{PROGRAM} is not installed (Debian: perftest)"
_ALONE = "it needs two pairs: four free VFs, or two on each of two hosts"


@dataclass(frozen=True, slots=True)
class Load:
    """How traffic is measured: the limits in Mb/s, none to derive them, and how long each run counts in seconds."""

    limits_mbps: tuple[int, ...]
    seconds: int


@dataclass(frozen=True, slots=True)
class Sender:
    """A VF that sends, its pod's end, and where it sends to; ``local`` is the end there if it is on this host."""

    subject: Subject
    pair: Pair
    local: Endpoint | None

    def limit(self, mbps: int | None, min_mbps: int = 0) -> None:
        if "max_tx_rate" in self.subject.target.pf.can:
            self.subject.write(VfSettings(min_tx_rate=min_mbps, max_tx_rate=mbps or 0))


# Makes receivers on another host, as many as are asked for or fewer.
Peer = Callable[[int], AbstractContextManager[Sequence[Receiver]]]


def measure(subjects: Sequence[Subject], load: Load, peer: Peer | None, tell: Tell) -> None:
    """Tell what traffic shows; whatever fails, the VFs are given back."""
    if shutil.which(PROGRAM) is None:
        tell(Answer("traffic.free", "not asked", {}, MISSING))
        return
    if len(subjects) < (1 if peer else 2):
        tell(Answer("traffic.free", "not asked", {}, "traffic needs two VFs that nobody uses"))
        return
    try:
        with ExitStack() as stack:
            senders = _remote_pairs(stack, subjects, peer) if peer else _local_pairs(stack, subjects)
            # With their locks held the node's own repairs leave the VFs alone.
            with hold_locks(subjects[0].target.run, [subject.vf.pci for subject in subjects], LOCK_S):
                _measure(senders, load, tell)
    except (CommandError, OSError) as error:
        tell(Answer("traffic.free", "not asked", {}, _reason(error)))


def _local_pairs(stack: ExitStack, subjects: Sequence[Subject]) -> list[Sender]:
    ends = [attach_end(stack, subject, number, f"10.250.0.{number + 1}") for number, subject in enumerate(subjects)]
    pairs = range(0, len(ends) // 2 * 2, 2)
    return [Sender(subjects[at], Pair(ends[at], LocalReceiver(ends[at + 1])), ends[at + 1]) for at in pairs]


def _remote_pairs(stack: ExitStack, subjects: Sequence[Subject], peer: Peer) -> list[Sender]:
    receivers = stack.enter_context(peer(min(len(subjects), MOST_PAIRS)))
    senders = []
    for number, (subject, receiver) in enumerate(zip(subjects, receivers, strict=False)):
        end = attach_end(stack, subject, number, f"10.250.0.{number + 1}")
        senders.append(Sender(subject, Pair(end, receiver), None))
    return senders


@contextmanager
def lend_vfs(subjects: Sequence[Subject]) -> Iterator[Sequence[Receiver]]:
    """Attach VFs to which a test on another host sends."""
    with ExitStack() as stack:
        ends = [attach_end(stack, subject, number, f"10.250.1.{number + 1}") for number, subject in enumerate(subjects)]
        with hold_locks(subjects[0].target.run, [subject.vf.pci for subject in subjects], LOCK_S):
            yield [LocalReceiver(end) for end in ends]


def attach_end(stack: ExitStack, subject: Subject, number: int, address: str) -> Endpoint:
    """Attach a VF with all settings that are changed later, so that its ledger entry has them."""
    values: dict[str, object] = {"vlan": 0, "qos": 0, "min_tx_rate": 0, "max_tx_rate": 0, "spoofchk": True}
    values |= {"mac": subject.addresses.mac(f"traffic {number}"), "guid": subject.addresses.guid(f"traffic {number}")}
    # A VF's link is down at first on InfiniBand (mlx5_core_sriov_configure leaves the policy Down).
    values |= {"link_state": "auto"} if subject.target.pf.link == "infiniband" else {}
    known = {name: value for name, value in values.items() if name in subject.target.pf.can}
    made = stack.enter_context(pod(number, subject.assigned(VfSettings(**known)), subject.folders))  # type: ignore[arg-type]
    return endpoint(made, address, rdma_of(subject.target, subject.vf.pci))


def _measure(senders: Sequence[Sender], load: Load, tell: Tell) -> None:
    first = senders[0]
    first.limit(None)
    line = first.subject.target.pf.mbps
    (free,) = perftest.measure([first.pair], stream_for(line, load.seconds)).mbps
    limits = load.limits_mbps or rates.limits_for(free)
    fault = rates.rate_fault(None, free, limits) if load.limits_mbps else None
    found: dict[str, object] = {"mbps": free, "line-percent": round(100 * free / line) if line else None}
    tell(Answer("traffic.free", "differs" if fault else "info", found, fault or ""))
    asked: list[tuple[tuple[str, ...], Callable[[], list[Answer]]]] = [
        (("traffic.max-rate",), lambda: _max_rate(first, limits, load)),
        (("traffic.burst", "traffic.rate-change"), lambda: _rate_change(first, limits, load)),
        (("traffic.min-rate",), lambda: _min_rate(senders, free, load)),
        (("traffic.counters",), lambda: _counters(first, free)),
        (("traffic.spoofchk",), lambda: _spoofchk(first)),
        (("traffic.vlan",), lambda: _vlan(first)),
    ]
    for names, ask in asked:
        try:
            answers = ask()
        except (CommandError, OSError) as error:
            answers = [Answer(name, "not asked", {}, _reason(error)) for name in names]
        for answer in answers:
            tell(answer)


def _max_rate(sender: Sender, limits: Sequence[int], load: Load) -> list[Answer]:
    if (unsupported := _unsupported(sender, "max_tx_rate", "traffic.max-rate")) is not None:
        return [unsupported]
    runs, faults = [], []
    for limit in limits:
        sender.limit(limit)
        (mbps,) = perftest.measure([sender.pair], stream_for(limit, load.seconds)).mbps
        runs.append({"max_tx_rate": limit, "mbps": mbps})
        if (fault := rates.rate_fault(limit, mbps, limits)) is not None:
            faults.append(f"{limit}: {fault}")
    return [Answer("traffic.max-rate", "differs" if faults else "ok", {"runs": runs}, "; ".join(faults))]


def _rate_change(sender: Sender, limits: Sequence[int], load: Load) -> list[Answer]:
    """Send under the highest limit after a pause, and set the lowest one while traffic flows."""
    names = ("traffic.burst", "traffic.rate-change")
    answers = [_unsupported(sender, "max_tx_rate", name) for name in names]
    if any(answers):
        return [answer for answer in answers if answer is not None]
    high, low = max(limits), min(limits)
    seconds = max(load.seconds, _OBSERVED_LEAST_S)
    steps = [(lambda: sender.limit(high), seconds), (lambda: sender.limit(low), seconds)]
    before, after = perftest.observe(sender.pair, stream_for(low, seconds), steps)
    fault = f"exceeds the limit by more than {rates.OVER_PERCENT} %" if rates.exceeds(high, before[0]) else ""
    burst = Answer(names[0], "differs" if fault else "ok", {"max_tx_rate": high, "mbps-by-second": before}, fault)
    late = rates.change_fault(low, after) or ""
    found = {"max_tx_rate": [high, low], "mbps-by-second": after, "kept-from-second": rates.change_s(low, after)}
    return [burst, Answer(names[1], "differs" if late else "ok", found, late)]


def _min_rate(senders: Sequence[Sender], free: float, load: Load) -> list[Answer]:
    check = "traffic.min-rate"
    if (unsupported := _unsupported(senders[0], "min_tx_rate", check)) is not None:
        return [unsupported]
    if len(senders) < MOST_PAIRS:
        return [Answer(check, "not asked", {}, _ALONE)]
    line = senders[0].subject.target.pf.mbps
    wanted = rates.min_rates_for(min(free, line) if line else free)
    for sender, mbps in zip(senders, wanted, strict=True):
        sender.limit(None, mbps)
    together = perftest.measure([sender.pair for sender in senders], stream_for(line, load.seconds))
    shares = Shares(wanted, together.mbps, free, together.overlap)
    found = {"min_tx_rate": list(wanted), "mbps": list(shares.mbps), "overlap-percent": round(100 * shares.overlap)}
    if (why := rates.no_competition(shares)) is not None:
        return [Answer(check, "not asked", found, why)]
    fault = rates.share_fault(shares)
    return [Answer(check, "differs" if fault else "ok", found, fault or "")]


def _counters(sender: Sender, free: float) -> list[Answer]:
    sender.limit(None)
    stream = stream_for(int(free), 1)
    most = _MOST_KNOWN_BYTES // (stream.message_bytes * stream.qps)
    wanted = free * 1e6 / 8 * _KNOWN_S / (stream.message_bytes * stream.qps)
    before = read_counters(sender.subject, sender.pair.sender, sender.local)
    sent = perftest.send(sender.pair, stream, min(max(round(wanted), _LEAST_MESSAGES), most))
    after = read_counters(sender.subject, sender.pair.sender, sender.local)
    growth = CounterGrowth(sent, {name: after[name] - before[name] for name in after if name in before})
    fault = growth.fault() or ""
    return [Answer("traffic.counters", "differs" if fault else "ok", growth.percents(), fault)]


def _spoofchk(sender: Sender) -> list[Answer]:
    check = "traffic.spoofchk"
    if sender.local is None:
        return [Answer(check, "n/a", {}, "it is asked on one host")]
    if (unsupported := _unsupported(sender, "spoofchk", check)) is not None:
        return [unsupported]
    passes = {}
    for name, on in (("passes-off", False), ("passes-on", True)):
        sender.subject.write(VfSettings(spoofchk=on))
        passes[name] = frames.foreign_frames_pass(sender.pair.sender, sender.local)
    why = "spoofchk lets frames with a foreign MAC pass" if passes["passes-on"] else ""
    return [Answer(check, "differs" if why else "ok", passes, why)]


def _vlan(sender: Sender) -> list[Answer]:
    check = "traffic.vlan"
    if sender.local is None:
        return [Answer(check, "n/a", {}, "it is asked on one host")]
    if (unsupported := _unsupported(sender, "vlan", check)) is not None:
        return [unsupported]
    without = frames.udp_passes(sender.pair.sender, sender.local)
    sender.subject.write(VfSettings(vlan=_VLAN, qos=0))
    inside = frames.udp_passes(sender.pair.sender, sender.local)
    why = "" if without and not inside else "the VLAN makes no difference"
    return [Answer(check, "differs" if why else "ok", {"passes-without": without, "passes-with": inside}, why)]


def _unsupported(sender: Sender, setting: str, check: str) -> Answer | None:
    if setting in sender.subject.target.pf.can:
        return None
    return Answer(check, "n/a", {}, f"`can` does not list {setting}")


def _reason(failed: CommandError | OSError) -> str:
    return refusal(failed) if isinstance(failed, CommandError) else str(failed)
