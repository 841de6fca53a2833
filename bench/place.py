"""Time `scheduler.placement.place` on the hardest instances that we could construct; print a line a family.

    python -m bench.place [--instances 200] [--seed 1] [--budget N] [--family TEXT]

Times are CPU times of the thread. The goal is 5 ms at the most for a call.
"spent" is how often the budget ran out: neither placed nor proven impossible.
"""

import argparse
import gc
import statistics
import time
from collections.abc import Callable
from random import Random

from bench.loads.place_instances import FAMILIES, Family
from scheduler.placement.place import BUDGET, Fit, NoFit, OutOfBudget, outcomes, place
from scheduler.placement.steps import Steps


def measure(family: Family, instances: int, seed: int, budget: int) -> tuple[list[float], list[type]]:
    """Return each call's milliseconds (the best of two) and outcome."""
    random = Random(seed)
    times, outcomes = [], []
    for _ in range(instances):
        demands, free, spreading = family(random)
        calls = [timed(lambda: place(demands, free, spreading, budget, steps=Steps())) for _ in range(2)]  # noqa: B023 - called at once
        times.append(min(spent_ms for spent_ms, _ in calls))
        outcomes.append(calls[0][1])
    return times, outcomes


def timed(call: Callable[[], Fit | NoFit | OutOfBudget]) -> tuple[float, type]:
    outcomes.clear()
    start = time.thread_time()
    outcome = call()
    return (time.thread_time() - start) * 1000, type(outcome)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--instances", type=int, default=200, help="instances of each family (default 200)")
    parser.add_argument("--seed", type=int, default=1, help="of the generator (default 1)")
    parser.add_argument("--budget", type=int, default=BUDGET, help=f"steps for a call (default {BUDGET})")
    parser.add_argument("--family", default="", help="only families whose name contains this")
    options = parser.parse_args()
    gc.disable()
    print(f"{'family':36} {'n':>5} {'p50 ms':>7} {'p99 ms':>7} {'max ms':>7} {'placed':>7} {'no fit':>7} {'spent':>6}")
    every_time: list[float] = []
    spent = 0
    for name, family in FAMILIES.items():
        if options.family not in name:
            continue
        times, outcomes = measure(family, options.instances, options.seed, options.budget)
        every_time += times
        spent += outcomes.count(OutOfBudget)
        p50, p99 = statistics.median(times), sorted(times)[int(len(times) * 0.99) - 1 if len(times) > 1 else 0]
        counts = [outcomes.count(kind) for kind in (Fit, NoFit, OutOfBudget)]
        figures = f"{name:36} {len(times):5} {p50:7.2f} {p99:7.2f} {max(times):7.2f} "
        print(figures.ljust(66), *(f"{n:7}" for n in counts))
    print(
        f"\n{len(every_time)} calls: p50 {statistics.median(every_time):.2f} ms, max {max(every_time):.2f} ms; "
        f"budget of {options.budget} steps spent in {spent} ({spent / len(every_time):.2%})"
    )


if __name__ == "__main__":
    main()
