"""The traffic of one measurement: perftest's options, its result, and how much of the time several pairs overlap.

Traffic is sized by time. A number of bytes that lasts for seconds at 1 Gb/s passes in milliseconds at 100 Gb/s, before
the next pair has started. perftest sends for ``-D`` seconds and counts the messages that complete between the margins
``-f`` at both ends (catch_alarm in its perftest_resources.c). A pair that starts later than another one, by less than a
margin, is sending all of the time in which the other one counts.
"""

from collections.abc import Sequence
from dataclasses import dataclass

PROGRAM = "ib_write_bw"
# perftest's own default (DEF_PORT in perftest_parameters.h). Each pod has its own network namespace.
PORT = 18515
_MESSAGE_BYTES = 1 << 16
# 4.096 us * 2^18 (IBV_QP_TIMEOUT in ibv_modify_qp(3)) is a second. A VF with a low limit holds messages back for longer
# than perftest's 67 ms, and they would be sent again.
_TIMEOUT = 18
_MARGIN_S, _SHORT_MARGIN_S, _SHORT_S = 2, 1, 3
# Queue pairs by line rate: one does not fill a fast port. All pairs have the same number, so that a share of the port
# comes from the VFs' rates and not from their queue pairs.
_QPS = ((10_000, 2), (50_000, 4), (200_000, 8))
_MOST_QPS, _MOST_DEPTH = 16, 128
_UNKNOWN_MBPS = 100_000
# Messages on the way for so long at the rate: enough for a round trip, and little beside the measured time.
_OUTSTANDING_S = 0.02
_RESULT_FIELDS = 5
# The options of a stream: those with a number, and the highest; and those without.
_MOST_VALUES = {"-s": 1 << 20, "-q": 64, "-t": 1024, "-u": 31, "-Q": 1024, "-D": 600, "-f": 60, "-n": 1 << 30}
_BARE = ("-F", "--report_gbits", "--run_infinitely")


@dataclass(frozen=True, slots=True)
class Stream:
    """How one pair sends: size of a message, queue pairs, messages on the way for each, and times in seconds."""

    message_bytes: int
    qps: int
    tx_depth: int
    measured_s: int
    margin_s: int

    @property
    def duration_s(self) -> int:
        return self.measured_s + 2 * self.margin_s

    @property
    def size_options(self) -> tuple[str, ...]:
        """The options of which perftest wants the same on both sides: sizes, without a time or a count.

        ``-Q 1``: each message completes by itself. ``-F`` only keeps it from a warning about the CPU's frequency.
        """
        sizes = ("-s", str(self.message_bytes), "-q", str(self.qps), "-t", str(self.tx_depth))
        return (*sizes, "-u", str(_TIMEOUT), "-Q", "1", "-F", "--report_gbits")

    @property
    def options(self) -> tuple[str, ...]:
        return (*self.size_options, "-D", str(self.duration_s), "-f", str(self.margin_s))

    def count_options(self, messages: int) -> tuple[str, ...]:
        """Return the options for a fixed number of messages on each queue pair."""
        return (*self.size_options, "-n", str(messages))

    @property
    def endless_options(self) -> tuple[str, ...]:
        """The options for traffic that is reported every second until it is stopped."""
        return (*self.size_options, "-D", "1", "--run_infinitely")

    def mbps(self, messages: int, seconds: float) -> float:
        return round(messages * self.message_bytes * 8 / 1e6 / seconds, 3)


def stream_for(mbps: int, measured_s: int) -> Stream:
    """Return the traffic that fills a port, or a limit, of a rate in Mb/s; 0 is unknown, and takes that of 100 Gb/s."""
    mbps = mbps or _UNKNOWN_MBPS
    qps = next((qps for most, qps in _QPS if mbps <= most), _MOST_QPS)
    outstanding = mbps * 1e6 / 8 * _OUTSTANDING_S / _MESSAGE_BYTES
    depth = min(max(round(outstanding / qps), 2), _MOST_DEPTH)
    margin = _MARGIN_S if measured_s >= _SHORT_S else _SHORT_MARGIN_S
    return Stream(_MESSAGE_BYTES, qps, depth, measured_s, margin)


def messages_in(line: str) -> int | None:
    """Return how many messages a line of perftest's output reports, None for any other line.

    Bytes, messages, peak and average in Gb/s, millions of messages a second (REPORT_FMT in perftest_parameters.h). The
    rates are not read: perftest divides by the CPU's clock, and reports 0 where it finds none (get_cpu_mhz).
    """
    words = line.split()
    if len(words) != _RESULT_FIELDS or not (words[0].isdigit() and words[1].isdigit()):
        return None
    return int(words[1])


def result_of(output: str) -> int | None:
    """Return the messages that the last result of an output reports, None if it has none."""
    return next((found for line in reversed(output.splitlines()) if (found := messages_in(line)) is not None), None)


def overlap(stream: Stream, ends: Sequence[float]) -> float:
    """Return the share of each pair's measured time in which all pairs were sending: that of the worst pair.

    ``ends`` are the times at which the pairs ended, in seconds: each had been sending for the duration.
    """
    first = max(ends) - stream.duration_s
    last = min(ends)
    shares = []
    for end in ends:
        begin, until = end - stream.margin_s - stream.measured_s, end - stream.margin_s
        shares.append(max(0.0, min(until, last) - max(begin, first)) / stream.measured_s)
    return min(shares)


def check_options(words: Sequence[object]) -> tuple[str, ...]:
    """Return options that came from another host if they are a stream's, within bounds; raise ValueError."""
    rest, checked = list(words), list[str]()
    while rest:
        name = rest.pop(0)
        if name in _BARE:
            checked.append(str(name))
            continue
        value = rest.pop(0) if rest else None
        most = _MOST_VALUES.get(str(name))
        if most is None or not (isinstance(value, str) and value.isascii() and value.isdigit() and int(value) <= most):
            raise ValueError(f"option {name!r} {value!r} of {PROGRAM} is none of a stream, or exceeds {most}")
        checked += [str(name), value]
    return tuple(checked)
