"""Hard instances for `scheduler.placement.place`: up to 64 VFs, 2 to 16 PFs (8 unless named), at the edge of fitting.

Each family is a function of a random source to demands, capacities and the policy. Those named ``…-fits`` are built
from a solution; in the others the slack is so small that both answers occur. Where the hardness lies: with many items a
bin solutions are plenty, with two a bin it is matching. The peak lies between them, where there are about as many
solutions as instances. Sources: Martello and Toth, Knapsack Problems (1990), chapter 8; Falkenauer, A hybrid grouping
genetic algorithm for bin packing (1996), the triplets; Gent and Walsh, From approximate to optimal solutions (1995),
the phase transition; Schoenfield, Fast, exact solution of open bin packing problems (2002), Hard28.
"""

from collections.abc import Callable
from random import Random

from mooring.annotations.request import PfSpread
from scheduler.placement.place import PfCapacity, VfDemand

Instance = tuple[list[VfDemand], list[PfCapacity], PfSpread | None]
Family = Callable[[Random], Instance]

PFS = 8
EVERY = (1 << PFS) - 1
MANY = 128


def cut(random: Random, total: int, parts: int, step: int = 1) -> list[int]:
    """Cut ``total`` into ``parts`` positive multiples of ``step``, uniformly."""
    marks = sorted(random.sample(range(1, total // step), parts - 1))
    return [(high - low) * step for low, high in zip([0, *marks], [*marks, total // step], strict=True)]


def shuffled(random: Random, demands: list[VfDemand]) -> list[VfDemand]:
    return random.sample(demands, len(demands))


def _from_solution(random: Random, per_pf: int, capacities: list[int], step: int, slots: int = MANY) -> Instance:
    demands = [VfDemand(size, EVERY) for capacity in capacities for size in cut(random, capacity, per_pf, step)]
    return shuffled(random, demands), [PfCapacity(slots, capacity) for capacity in capacities], None


def perfect_fit(per_pf: int, capacity: int, step: int, *, uneven: bool = False) -> Family:
    """Every PF is filled to the last Mb/s; equal PFs, or each with something already taken."""

    def family(random: Random) -> Instance:
        low = capacity // 2 if uneven else capacity
        capacities = [random.randrange(low, capacity + 1, step) for _ in range(PFS)]
        return _from_solution(random, per_pf, capacities, step)

    return family


def like_rates(pfs: int, vfs: int, mbps: int) -> Family:
    """PFs of so many Mb/s, filled to the last VF and Mb/s by VFs whose rates on one PF are within 1 % of each other."""

    def family(random: Random) -> Instance:
        demands, counts = [], cut(random, vfs, pfs)
        for count in counts:
            rates = [mbps // count + random.randint(-mbps // count // 100, mbps // count // 100) for _ in range(count)]
            rates[0] += mbps - sum(rates)
            demands += [VfDemand(rate, (1 << pfs) - 1) for rate in rates]
        return shuffled(random, demands), [PfCapacity(count, mbps) for count in counts], None

    return family


def fill(pfs: int, vfs: int, *, tight: bool = False, mbps: int = 400_000) -> Family:
    """Few PFs of so many Mb/s, filled to the last by uneven numbers of VFs; tight: no VF is left over either."""

    def family(random: Random) -> Instance:
        counts = cut(random, vfs, pfs) if pfs < vfs else [1] * pfs
        demands = [VfDemand(rate, (1 << pfs) - 1) for count in counts for rate in cut(random, mbps, count)]
        return shuffled(random, demands), [PfCapacity(count if tight else MANY, mbps) for count in counts], None

    return family


def few_sizes(vfs: int, sizes: tuple[int, ...]) -> Family:
    """Two PFs with as many VFs as requested and no Mb/s to spare: each size occurs often, and a Mb/s has moved."""

    def family(random: Random) -> Instance:
        rates = [random.choice(sizes) for _ in range(vfs)]
        first = random.randrange(1, vfs)
        capacities = [PfCapacity(first, sum(rates[:first]) + 1), PfCapacity(vfs - first, sum(rates[first:]) - 1)]
        return shuffled(random, [VfDemand(rate, 3) for rate in rates]), capacities, None

    return family


def some_sizes(vfs: int, number: int, largest: int, *, tight: bool = True) -> Family:
    """Two PFs without a Mb/s to spare, one moved: so many sizes occur, drawn for each instance."""

    def rates(random: Random) -> list[int]:
        sizes = [random.randrange(1, largest) for _ in range(number)]
        return [random.choice(sizes) for _ in range(vfs)]

    return _two_without_slack(rates, by=1, tight=tight)


def consecutive(vfs: int, smallest: int) -> Family:
    """Two PFs without a Mb/s to spare, one moved: every rate is one Mb/s above another."""
    return _two_without_slack(lambda _: list(range(smallest, smallest + vfs)), by=1)


def almost_multiples(vfs: int, unit: int, largest: int) -> Family:
    """Rates that are multiples of a unit but for three: by 1 each. What is moved needs 7 such."""

    def rates(random: Random) -> list[int]:
        return [random.randrange(1, largest // unit + 1) * unit + (index < 3) for index in range(vfs)]

    return _two_without_slack(rates, by=7)


def clusters(vfs: int, small: int, large: int, width: int) -> Family:
    """Rates of about two sizes; what is moved lies between the sums that so many of them can have."""

    def rates(random: Random) -> list[int]:
        return [random.choice((small, large)) + random.randrange(width) for _ in range(vfs)]

    return _two_without_slack(rates, by=(large - small) // 3)


def _two_without_slack(rates: Callable[[Random], list[int]], by: int, *, tight: bool = True) -> Family:
    def family(random: Random) -> Instance:
        drawn = rates(random)
        first = random.randrange(len(drawn) // 4, len(drawn) * 3 // 4)
        counts = (first, len(drawn) - first) if tight else (MANY, MANY)
        free = [PfCapacity(counts[0], sum(drawn[:first]) + by), PfCapacity(counts[1], sum(drawn[first:]) - by)]
        return shuffled(random, [VfDemand(rate, 3) for rate in drawn]), free, None

    return family


def perfect_fit_in_vfs_too(per_pf: int, capacity: int, step: int) -> Family:
    """Every PF is filled to the last Mb/s and to the last VF."""

    def family(random: Random) -> Instance:
        return _from_solution(random, per_pf, [capacity] * PFS, step, slots=per_pf)

    return family


def moved(family: Family, by: int) -> Family:
    """Move some Mb/s from one PF to another: Σ is the same, whether it fits is open."""

    def other(random: Random) -> Instance:
        demands, free, spreading = family(random)
        giver, taker = random.sample(range(len(free)), 2)
        free[giver] = PfCapacity(free[giver].vfs, free[giver].mbps - by)
        free[taker] = PfCapacity(free[taker].vfs, free[taker].mbps + by)
        return demands, free, spreading

    return other


def uniform(vfs: int, low: int, high: int, step: int, slack: float) -> Family:
    """Random rates, and equal PFs with ``slack`` of their capacity to spare."""

    def family(random: Random) -> Instance:
        demands = [VfDemand(random.randrange(low, high + 1, step), EVERY) for _ in range(vfs)]
        capacity = -(-int(sum(demand.min_tx_rate for demand in demands) * (1 + slack)) // PFS)
        return demands, [PfCapacity(MANY, capacity)] * PFS, None

    return family


def uneven(vfs: int, low: int, high: int, step: int, slack: float) -> Family:
    """Random rates over PFs of which a random part is taken already."""

    def family(random: Random) -> Instance:
        demands = [VfDemand(random.randrange(low, high + 1, step), EVERY) for _ in range(vfs)]
        total = int(sum(demand.min_tx_rate for demand in demands) * (1 + slack))
        weights = [random.uniform(0.4, 1) for _ in range(PFS)]
        return demands, [PfCapacity(MANY, int(total * weight / sum(weights)) + 1) for weight in weights], None

    return family


def triplets(capacity: int, step: int, slack: int) -> Family:
    """24 VFs, each over a quarter and under half of a PF, three to a PF (3-partition, strongly NP-complete)."""

    def family(random: Random) -> Instance:
        demands = []
        for _ in range(PFS):
            while True:
                first, second = (random.randrange(capacity // 4 + step, capacity // 2, step) for _ in range(2))
                third = capacity - first - second
                if capacity // 4 < third < capacity // 2:
                    break
            demands += [VfDemand(size, EVERY) for size in (first, second, third)]
        return shuffled(random, demands), [PfCapacity(MANY, capacity + slack)] * PFS, None

    return family


def near_equal(vfs: int, middle: int, width: int, slack: int) -> Family:
    """Rates that differ by little: what counts is which few are the larger ones."""

    def family(random: Random) -> Instance:
        demands = [VfDemand(middle + random.randrange(-width, width + 1), EVERY) for _ in range(vfs)]
        total = sum(demand.min_tx_rate for demand in demands)
        capacities = [total // PFS + (index < total % PFS) + slack for index in range(PFS)]
        return demands, [PfCapacity(MANY, capacity) for capacity in capacities], None

    return family


def tight_vfs(vfs: int, low: int, high: int, step: int, slack: float) -> Family:
    """As many free VFs as requested, spread unevenly, and little bandwidth to spare."""

    def family(random: Random) -> Instance:
        demands = [VfDemand(random.randrange(low, high + 1, step), EVERY) for _ in range(vfs)]
        slots = cut(random, vfs, PFS)
        total = sum(demand.min_tx_rate for demand in demands)
        return demands, [PfCapacity(count, int(total * count / vfs * (1 + slack))) for count in slots], None

    return family


def selectors(family: Family, classes: int, keep: float) -> Family:
    """Let a part of the VFs name a network: PFs lie in ``classes`` networks."""

    def other(random: Random) -> Instance:
        demands, free, spreading = family(random)
        networks = [sum(1 << pf for pf in range(PFS) if pf % classes == network) for network in range(classes)]
        chosen = [
            demand if random.random() < keep else VfDemand(demand.min_tx_rate, random.choice(networks))
            for demand in demands
        ]
        return chosen, free, spreading

    return other


def selectors_from_solution(per_pf: int, capacity: int, step: int, extra: int) -> Family:
    """A perfect fit in which each VF may lie on its own PF and on ``extra`` others."""

    def family(random: Random) -> Instance:
        demands = []
        for pf in range(PFS):
            for size in cut(random, capacity, per_pf, step):
                others = random.sample([other for other in range(PFS) if other != pf], extra)
                demands.append(VfDemand(size, sum(1 << other for other in (pf, *others))))
        return shuffled(random, demands), [PfCapacity(MANY, capacity)] * PFS, None

    return family


def without_rates(family: Family, share: float) -> Family:
    """Let a part of the VFs reserve nothing: they need only the VFs, of which none is left over."""

    def other(random: Random) -> Instance:
        demands, free, spreading = family(random)
        demands = [VfDemand(0, demand.pfs) if random.random() < share else demand for demand in demands]
        slots = cut(random, len(demands), PFS)
        return (
            demands,
            [PfCapacity(count, capacity.mbps) for count, capacity in zip(slots, free, strict=True)],
            spreading,
        )

    return other


def policy(family: Family, spreading: PfSpread) -> Family:
    def other(random: Random) -> Instance:
        demands, free, _ = family(random)
        return demands, free, spreading

    return other


def distinct(vfs: int, slack: int) -> Family:
    """Each VF on a PF of its own, whose capacity is hardly over its rate."""

    def family(random: Random) -> Instance:
        rates = [random.randrange(1000, 100_000) for _ in range(vfs)]
        masks = [random.getrandbits(PFS) | 1 << random.randrange(PFS) for _ in rates]
        capacities = [PfCapacity(MANY, rate + random.randrange(-slack, slack + 1)) for rate in rates]
        demands = [VfDemand(rate, mask) for rate, mask in zip(rates, masks, strict=True)]
        return shuffled(random, demands), capacities + [PfCapacity(1, 0)] * (PFS - vfs), "distinct"

    return family


FAMILIES: dict[str, Family] = {
    "2 PFs, 24, fits": fill(2, 24),
    "2 PFs, 64, fits": fill(2, 64),
    "2 PFs, 24, VFs tight, fits": fill(2, 24, tight=True),
    "2 PFs, 64, VFs tight, fits": fill(2, 64, tight=True),
    "2 PFs, 64, VFs tight, moved": moved(fill(2, 64, tight=True), 1),
    "2 PFs, 64, VFs tight, 1.6 Tb/s, fits": fill(2, 64, tight=True, mbps=1_600_000),
    "2 PFs, 64, VFs tight, 1.6 Tb/s, moved": moved(fill(2, 64, tight=True, mbps=1_600_000), 1),
    "2 PFs, 32, VFs tight, fits": fill(2, 32, tight=True),
    "2 PFs, 32, VFs tight, 1.6 Tb/s, fits": fill(2, 32, tight=True, mbps=1_600_000),
    "2 PFs, 48, VFs tight, 1.6 Tb/s, fits": fill(2, 48, tight=True, mbps=1_600_000),
    "2 PFs, 64, VFs tight, few sizes": few_sizes(64, (1600, 40_001, 1243, 160_003)),
    **{
        f"2 PFs, 64, {number} sizes{', VFs tight' if tight else ''}{name}": some_sizes(64, number, largest, tight=tight)
        for largest, name in ((25_000, ""), (100_000, ", 1.6 Tb/s"))
        for number in (2, 4, 6, 8, 10, 16, 48)
        for tight in (True, False)
    },
    "2 PFs, 64, VFs tight, consecutive": consecutive(64, 12_468),
    "2 PFs, 64, VFs tight, near multiples": almost_multiples(64, 100, 25_000),
    "2 PFs, 64, VFs tight, two clusters": clusters(64, 3_000, 22_000, 200),
    "4 PFs, 16, fits": fill(4, 16),
    "4 PFs, 16, VFs tight, fits": fill(4, 16, tight=True),
    "5 PFs, 16, VFs tight, fits": fill(5, 16, tight=True),
    "6 PFs, 16, VFs tight, fits": fill(6, 16, tight=True),
    "8 PFs, 16, VFs tight, fits": fill(8, 16, tight=True),
    "12 PFs, 16, VFs tight, fits": fill(12, 16, tight=True),
    "16 PFs, 16, VFs tight, fits": fill(16, 16, tight=True),
    **{
        f"{pfs} PFs, 16, VFs tight, like rates{name}": like_rates(pfs, 16, mbps)
        for mbps, name in ((400_000, ""), (1_600_000, ", 1.6 Tb/s"))
        for pfs in (4, 5, 6, 8, 12)
    },
    "8 a PF, step 1000, fits": perfect_fit(8, 100_000, 1000),
    "8 a PF, step 1, fits": perfect_fit(8, 100_000, 1),
    "8 a PF, uneven, step 100, fits": perfect_fit(8, 100_000, 100, uneven=True),
    "8 a PF, uneven, step 1, fits": perfect_fit(8, 400_000, 1, uneven=True),
    "6 a PF, step 1, fits": perfect_fit(6, 100_000, 1),
    "5 a PF, step 1, fits": perfect_fit(5, 100_000, 1),
    "5 a PF, step 100, fits": perfect_fit(5, 100_000, 100),
    "5 a PF, uneven, step 100, fits": perfect_fit(5, 100_000, 100, uneven=True),
    "4 a PF, step 1, fits": perfect_fit(4, 100_000, 1),
    "4 a PF, step 100, fits": perfect_fit(4, 100_000, 100),
    "4 a PF, uneven, step 100, fits": perfect_fit(4, 100_000, 100, uneven=True),
    "3 a PF, step 100, fits": perfect_fit(3, 100_000, 100),
    "8 a PF, VFs tight, step 100, fits": perfect_fit_in_vfs_too(8, 100_000, 100),
    "5 a PF, VFs tight, step 1, fits": perfect_fit_in_vfs_too(5, 100_000, 1),
    "4 a PF, VFs tight, step 100, fits": perfect_fit_in_vfs_too(4, 100_000, 100),
    "8 a PF, step 1000, moved": moved(perfect_fit(8, 100_000, 1000), 500),
    "5 a PF, step 1, moved": moved(perfect_fit(5, 100_000, 1), 1),
    "5 a PF, step 100, moved": moved(perfect_fit(5, 100_000, 100), 100),
    "4 a PF, step 1, moved": moved(perfect_fit(4, 100_000, 1), 1),
    "4 a PF, step 1000, moved": moved(perfect_fit(4, 100_000, 1000), 1000),
    "4 a PF, VFs tight, moved": moved(perfect_fit_in_vfs_too(4, 100_000, 100), 100),
    "24 uniform, slack 1 %": uniform(24, 1000, 30_000, 1, 0.01),
    "24 uniform, slack 3 %": uniform(24, 1000, 30_000, 1, 0.03),
    "32 uniform, slack 0.1 %": uniform(32, 1000, 25_000, 1, 0.001),
    "32 uniform, slack 0.5 %": uniform(32, 1000, 25_000, 1, 0.005),
    "32 uniform, slack 2 %": uniform(32, 1000, 25_000, 1, 0.02),
    "40 uniform, slack 0.02 %": uniform(40, 1000, 20_000, 1, 0.0002),
    "40 uniform, large, slack 0.5 %": uniform(40, 12_000, 20_000, 1, 0.005),
    "40 uniform, large, slack 1 %": uniform(40, 12_000, 20_000, 100, 0.01),
    "64 uniform, slack 0": uniform(64, 1, 12_000, 1, 0),
    "64 uniform, large, slack 0.5 %": uniform(64, 8_000, 12_000, 1, 0.005),
    "24 uneven, slack 2 %": uneven(24, 1000, 30_000, 100, 0.02),
    "32 uneven, slack 0.5 %": uneven(32, 1000, 25_000, 1, 0.005),
    "40 uneven, slack 0.1 %": uneven(40, 1000, 20_000, 1, 0.001),
    "64 uneven, slack 0.01 %": uneven(64, 1000, 12_000, 1, 0.0001),
    "triplets, step 1, fits": triplets(100_000, 1, 0),
    "triplets, step 100, fits": triplets(100_000, 100, 0),
    "triplets, slack 1 %, fits": triplets(100_000, 1, 1000),
    "triplets, one short": moved(triplets(100_000, 100, 0), 100),
    "near equal, 64, slack 0": near_equal(64, 10_000, 100, 0),
    "near equal, 60, slack 50": near_equal(60, 10_000, 500, 50),
    "near equal, 40, slack 10": near_equal(40, 20_000, 2000, 10),
    "near equal, 28, slack 300": near_equal(28, 20_000, 2000, 300),
    "VFs tight, 40, slack 1 %": tight_vfs(40, 1000, 20_000, 100, 0.01),
    "VFs tight, 40, slack 5 %": tight_vfs(40, 1000, 20_000, 100, 0.05),
    "VFs tight, 64, slack 2 %": tight_vfs(64, 1000, 12_000, 100, 0.02),
    "VFs tight, 64, slack 10 %": tight_vfs(64, 1000, 12_000, 1, 0.1),
    "2 networks, 40, slack 1 %": selectors(uniform(40, 1000, 20_000, 100, 0.01), 2, 0.3),
    "4 networks, 40, slack 5 %": selectors(uniform(40, 1000, 20_000, 100, 0.05), 4, 0.4),
    "4 networks, 64, slack 5 %": selectors(uniform(64, 1000, 12_000, 100, 0.05), 4, 0.4),
    "own PF and 1 other, 5 a PF, fits": selectors_from_solution(5, 100_000, 100, 1),
    "own PF and 2 others, 8 a PF, fits": selectors_from_solution(8, 100_000, 100, 2),
    "own PF and 3 others, 4 a PF, fits": selectors_from_solution(4, 100_000, 1, 3),
    "half without rates, VFs tight": without_rates(uniform(64, 1000, 12_000, 100, -0.45), 0.5),
    "half without, 4 networks": without_rates(selectors(uniform(64, 1000, 12_000, 100, -0.3), 4, 0.5), 0.5),
    "distinct, 8, slack 2000": distinct(8, 2000),
    "distinct, 6, slack 2000": distinct(6, 2000),
    "spread, 40, slack 2 %": policy(uniform(40, 1000, 20_000, 100, 0.02), "spread"),
    "spread, uneven 64, slack 5 %": policy(uneven(64, 1000, 12_000, 100, 0.05), "spread"),
    "pack, 12 in 8": policy(uniform(12, 1000, 20_000, 100, 2.0), "pack"),
    "pack, 40, slack 30 %": policy(uneven(40, 1000, 20_000, 100, 0.3), "pack"),
    "pack, 4 networks, slack 30 %": policy(selectors(uniform(40, 1000, 20_000, 100, 0.3), 4, 0.4), "pack"),
}
