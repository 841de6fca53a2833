"""Compare today's decisions with the recorded ones, or record them.

    python -m tests.scheduler.decisions [--write] [--seed N]

It prints each line that differs, how many seeds of each topic do, and, before and now, how many members were placed and
how many pods had to go. With ``--write`` it also records today's decisions. Exit status 1 if any differs.
"""

import argparse
import sys
from collections import Counter

from tests.scheduler.decisions.recording import FILE, SEEDS, decide, differences, read, write


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--write", action="store_true", help="record today's decisions")
    parser.add_argument("--seed", type=int, help="only this seed, of which all lines are printed")
    options = parser.parse_args()
    if options.seed is not None:
        print("\n".join(decide(options.seed).lines))
        return 0
    recorded, now = read() if FILE.exists() else {}, [decide(seed) for seed in SEEDS]
    seeds, counts_before, counts_now = Counter[str](), Counter[str](), Counter[str]()
    for one in now:
        before = recorded.get(one.seed)
        found = list(differences(before, one)) if before is not None else [f"seed {one.seed} is new"]
        print("\n".join(found), end="\n" if found else "")
        seeds[one.topic] += bool(found)
        counts_now += one.counts
        counts_before += before.counts if before is not None else Counter()
    print("\n".join(f"{topic}: {count} seeds differ" for topic, count in sorted(seeds.items())))
    print("\n".join(f"{what}: {counts_before[what]} before, {count} now" for what, count in sorted(counts_now.items())))
    if options.write:
        write(now)
    return 1 if seeds.total() else 0


if __name__ == "__main__":
    sys.exit(main())
