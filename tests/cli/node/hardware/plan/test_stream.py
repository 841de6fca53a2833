"""Traffic of 10 to 800 Gb/s, modelled: pairs overlap on any NIC, and verdicts about shares follow from what it does.

The model is perftest's order of events: a pair is launched, sets up its queue pairs, sends for the duration, and counts
between the margins. What a port moves is shared out among the pairs that are sending.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import pytest

from cli.node.hardware.plan.rates import (
    Shares,
    change_fault,
    change_s,
    limits_for,
    min_rates_for,
    no_competition,
    rate_fault,
    share_fault,
)
from cli.node.hardware.plan.stream import Stream, messages_in, overlap, result_of, stream_for

LINES = (10_000, 25_000, 40_000, 50_000, 100_000, 200_000, 400_000, 800_000)
# perftest's set-up of one pair and of another one: equal, and far apart as where a host is busy.
SET_UPS = ((0.05, 0.05), (0.05, 0.4), (1.2, 0.1), (0.3, 1.9))


@dataclass(frozen=True, slots=True)
class Sending:
    """One pair of the model: when it sends, and its guaranteed rate in Mb/s, which the NIC may keep."""

    begin: float
    end: float
    min_mbps: int = 0


def launched(stream: Stream, set_ups: Sequence[float], min_mbps: Sequence[int]) -> list[Sending]:
    """Return pairs that were launched one after the other, 20 ms apart."""
    begins = [0.02 * number + set_up for number, set_up in enumerate(set_ups)]
    return [Sending(t, t + stream.duration_s, least) for t, least in zip(begins, min_mbps, strict=True)]


def measured(stream: Stream, line: int, pairs: Sequence[Sending], *, keeps_min: bool) -> list[float]:
    """Return what each pair reports: messages between its margins, by the port's division of every instant."""
    edges = sorted({time for pair in pairs for time in (pair.begin, pair.end)})
    edges += [edge for pair in pairs for edge in (pair.begin + stream.margin_s, pair.end - stream.margin_s)]
    edges.sort()
    found = []
    for pair in pairs:
        bits = 0.0
        for begin, end in pairwise(edges):
            if pair.begin + stream.margin_s <= begin and end <= pair.end - stream.margin_s:
                active = [each for each in pairs if each.begin <= begin and end <= each.end]
                weights = sum(each.min_mbps for each in active)
                share = pair.min_mbps / weights if keeps_min and weights else 1 / len(active)
                bits += line * 1e6 * share * (end - begin)
        found.append(stream.mbps(int(bits / 8 / stream.message_bytes), stream.measured_s))
    return found


def shares_of(line: int, set_ups: Sequence[float], *, keeps_min: bool) -> Shares:
    stream, min_mbps = stream_for(line, 4), min_rates_for(line)
    pairs = launched(stream, set_ups, min_mbps)
    rates = measured(stream, line, pairs, keeps_min=keeps_min)
    return Shares(min_mbps, tuple(rates), line, overlap(stream, [pair.end for pair in pairs]))


@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize("set_ups", SET_UPS)
def test_pairs_are_sending_together_while_they_are_measured(line: int, set_ups: tuple[float, float]) -> None:
    """At every rate over 90 % of the measured time: traffic that was sized in bytes had 0 % at 100 Gb/s."""
    assert shares_of(line, set_ups, keeps_min=True).overlap > 0.9


@pytest.mark.parametrize("line", LINES)
def test_a_nic_that_keeps_min_rates_is_told_from_one_that_does_not(line: int) -> None:
    """Without min rates two senders get a half each, which is less than the higher min rate."""
    kept, equal = (shares_of(line, (0.05, 0.4), keeps_min=keeps) for keeps in (True, False))
    assert (no_competition(kept), share_fault(kept)) == (None, None)
    assert no_competition(equal) is None
    assert str(share_fault(equal)).startswith(f"less than min_tx_rate: {round(line * 0.75)} Mb/s: got")


def test_pairs_that_did_not_send_together_show_nothing() -> None:
    """A pair that started later than a margin: the answer is missing, not wrong."""
    shares = shares_of(100_000, (0.05, 4.0), keeps_min=True)
    assert "together for only 51%" in str(no_competition(shares))
    slow = Shares((100, 500), (90.0, 90.0), 700, 1.0)
    assert no_competition(slow) == "together the pairs moved less than their min rates, so something else held them up"


@pytest.mark.parametrize("line", LINES)
def test_messages_on_the_way_are_few_beside_those_that_are_measured(line: int) -> None:
    """Else what a limit holds back at the beginning would count; each queue pair keeps two at least."""
    for mbps in (*limits_for(line), line):
        stream = stream_for(mbps, 4)
        on_the_way_s = stream.message_bytes * stream.qps * stream.tx_depth * 8 / 1e6 / mbps
        assert on_the_way_s < 0.03, stream
        assert stream.tx_depth >= 2
    assert stream_for(line, 4).qps <= stream_for(800_000, 4).qps == 16


@pytest.mark.parametrize(("line", "mbps"), [(10_000, 9_300.0), (25_000, 22_000.0), (800_000, 310_000.0)])
def test_a_vf_runs_free_at_any_line_rate(line: int, mbps: float) -> None:
    """The limits follow from what a VF moves without one, so 10 Gb/s is enough; so is a CPU that cannot fill 800."""
    limits = limits_for(mbps)
    assert rate_fault(None, mbps, limits) is None
    assert all(rate_fault(limit, limit * 0.96, limits) is None for limit in limits)
    assert "does not run free" in str(rate_fault(None, 1100.0, (1000,)))


@pytest.mark.parametrize(
    ("by_second", "second"),
    [
        ((1000.0, 990.0, 980.0, 985.0), 0),
        ((4000.0, 2500.0, 990.0, 985.0), 2),
        ((4000.0, 4000.0, 2500.0, 985.0), 3),
        ((4000.0, 990.0, 990.0, 4000.0), None),
        ((990.0, 300.0, 250.0, 280.0), 0),
    ],
)
def test_a_new_limit_is_in_force_once_it_is_exceeded_no_more(by_second: tuple[float, ...], second: int | None) -> None:
    """After a change to 1000 Mb/s; two seconds are enough for it. That little flows is for another check."""
    assert change_s(1000, by_second) == second
    is_late = second is None or second > 2
    assert change_fault(1000, by_second) == ("not kept within 2 s" if is_late else None)


OUTPUT = """---------------------------------------------------------------------------------------
 GID: 00:00:00:00:00:00:00:00:00:00:255:255:10:250:00:01
 #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
 65536      745104           0.00               97.64              0.186235
---------------------------------------------------------------------------------------
"""


def test_the_result_is_the_number_of_messages() -> None:
    """perftest's own rate is 0 where it finds no clock of the CPU, as on a busy host."""
    stream = stream_for(100_000, 4)
    assert result_of(OUTPUT) == 745_104
    assert stream.mbps(745_104, stream.measured_s) == pytest.approx(97_662, abs=1)
    assert result_of(OUTPUT.replace("97.64", "0.00")) == 745_104
    assert result_of(" Couldn't connect to 127.0.0.1:18515\n") is None
    assert messages_in("1 2 3") is None


def test_a_stream_is_given_to_perftest_by_time_by_count_or_without_an_end() -> None:
    """The server gets the same options."""
    stream = stream_for(25_000, 4)
    sizes = ("-s", "65536", "-q", "4", "-t", "128", "-u", "18", "-Q", "1", "-F", "--report_gbits")
    assert stream.options == (*sizes, "-D", "8", "-f", "2")
    assert stream.count_options(500) == (*sizes, "-n", "500")
    assert stream.endless_options == (*sizes, "-D", "1", "--run_infinitely")
    assert stream_for(25_000, 1).duration_s == 3
    assert stream_for(0, 4) == stream_for(100_000, 4)
