"""Devcluster's table of VF settings answers as mlx5_core does, which runs above the modelled chip."""

from pathlib import Path

import pytest

from bench.nic import on_table
from bench.nic.cases import CHOICES, matrix, random_cases
from bench.nic_differences import differences, main, on_driver
from mooring.names import LinkType
from tests.support.seeds import Part


@pytest.mark.lab
@pytest.mark.parametrize("link", list(CHOICES))
def test_the_table_does_what_the_driver_does(part: Part, tmp_path: Path, link: LinkType) -> None:
    """Each value, order, refused command and event, and random sequences: with ``--long`` all, otherwise a few."""
    cases = [*part.of([*matrix(link)], "cases", one_in=60), *random_cases(link, part.seed, 40 if part.whole else 3)]
    table = on_table.run(link, [case.steps for case in cases], tmp_path)
    assert [*differences(cases, table, on_driver(link, cases, tmp_path))] == []


def test_words_that_no_case_has_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--only", "rates of two VFs", "--link", "infiniband"]) == 2
    assert capsys.readouterr() == ("", "no case has 'rates of two VFs' in its name\n")
