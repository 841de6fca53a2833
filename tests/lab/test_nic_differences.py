"""Devcluster's table of VF settings answers as mlx5_core does, which runs above the modelled chip."""

from pathlib import Path

import pytest

from bench.nic import on_table
from bench.nic.cases import CHOICES, matrix, random_cases
from bench.nic_differences import differences, on_driver
from mooring.names import LinkType
from tests.support.seeds import Part

pytestmark = pytest.mark.lab


@pytest.mark.parametrize("link", list(CHOICES))
def test_the_table_does_what_the_driver_does(part: Part, tmp_path: Path, link: LinkType) -> None:
    """Each value, order, refused command and event, and random sequences: with ``--long`` all, otherwise a few."""
    cases = [*part.of([*matrix(link)], "cases", one_in=60), *random_cases(link, part.seed, 40 if part.whole else 3)]
    table = on_table.run(link, [case.steps for case in cases], tmp_path)
    assert [*differences(cases, table, on_driver(link, cases, tmp_path))] == []
