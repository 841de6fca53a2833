"""The figures of `docs/concepts.md` about mlx5's rates are those of the driver's formula."""

import re
from pathlib import Path

import pytest

from devcluster.hosts.personalities.mlx5_rates import MAX_TSAR_BW_SHARE, bw_shares, min_rate_divider

PAGE = (Path(__file__).parents[2] / "docs/concepts.md").read_text(encoding="utf-8")
LINE_MBPS = 100_000
ROW = re.compile(r"\| (\d+) \| (\d+|none) \| (\d+), (\d+), (\d+|-) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+|-) \|")


def rows() -> list[tuple[str, ...]]:
    return [found.groups() for found in map(ROW.fullmatch, PAGE.splitlines()) if found is not None]


def gbps(weight: int, total: int) -> str:
    return f"{LINE_MBPS * weight / total / 1000:.1f}"


@pytest.mark.parametrize("row", rows(), ids=lambda row: f"{row[0]} others, share {row[1]}")
def test_a_row_is_what_the_driver_makes_of_it(row: tuple[str, ...]) -> None:
    """Pods A and B with 50,000 and 25,000 Mb/s, and so many others, all sending as fast as they can."""
    others, share = int(row[0]), 0 if row[1] == "none" else int(row[1])
    weights = bw_shares({0: 50_000, 1: 25_000, **dict.fromkeys(range(2, 2 + others), share)})
    total = sum(weights.values())
    other = weights.get(2)
    expected = (str(weights[0]), str(weights[1]), "-" if other is None else str(other))
    assert row[2:5] == expected
    assert row[5:] == (gbps(weights[0], total), gbps(weights[1], total), "-" if other is None else gbps(other, total))


def test_the_page_has_the_rows_and_the_assumption() -> None:
    """Without them the test above would check nothing."""
    assert len(rows()) == 5
    assert f"`max_tsar_bw_share` {MAX_TSAR_BW_SHARE}" in PAGE
    assert min_rate_divider({0: 50_000}) == 500
    assert "50,000 / 100 = 500" in PAGE


def test_two_mins_that_the_page_calls_equal_weigh_the_same() -> None:
    assert "1,990 and 1,900" in PAGE
    assert set(bw_shares({0: 1990, 1: 1900}).values()) == {100}
