"""Counters and histograms as plain numbers, which Prometheus reads on a scrape.

All work is done in one thread, so that no lock is needed, and counting is adding to an entry of a dictionary.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import REGISTRY, Collector


class Count(Collector):
    """A counter, by the values of its labels: ``by["bound",] += 1``."""

    def __init__(self, name: str, text: str, labels: Sequence[str] = ()) -> None:
        self._about = name, text, labels
        self.by: Counter[tuple[str, ...]] = Counter()
        if not labels:
            self.by[()] = 0
        REGISTRY.register(self)

    def collect(self) -> Iterable[Metric]:
        name, text, labels = self._about
        family = CounterMetricFamily(name, text, labels=labels)
        for values, count in self.by.items():
            family.add_metric(values, count)
        yield family


class Buckets:
    """How many values were at most each bound, of which the last is infinite, and their sum."""

    __slots__ = ("_bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self._bounds, value)] += 1
        self.total += value


class Distribution(Collector):
    """A histogram, by the values of its labels; ``of`` returns the buckets to observe a value in."""

    def __init__(self, name: str, text: str, bounds: Sequence[float], labels: Sequence[str] = ()) -> None:
        self._about = name, text, labels
        self._bounds = bounds
        self._by: dict[tuple[str, ...], Buckets] = {}
        if not labels:
            self.of()
        REGISTRY.register(self)

    def of(self, *values: str) -> Buckets:
        """Return the buckets of these label values; keep them where values come often."""
        found = self._by.get(values)
        if found is None:
            found = self._by[values] = Buckets(self._bounds)
        return found

    def collect(self) -> Iterable[Metric]:
        name, text, labels = self._about
        family = HistogramMetricFamily(name, text, labels=labels)
        bounds = [*(str(float(bound)) for bound in self._bounds), "+Inf"]
        for values, buckets in self._by.items():
            family.add_metric(values, list(zip(bounds, accumulate(buckets.counts), strict=True)), buckets.total)
        yield family
