"""docs/hardware.md: its settings are those that the advertiser publishes, its questions those of the hardware test."""

import re
from typing import cast, get_args

import pytest

from advertiser.inventory.driver_settings import settings_of
from cli.node.hardware.plan.checks import BY_ID, CHECKS
from mooring.names import LinkType
from mooring.settings import SETTING_NAMES
from tests.docs.pages import ROOT, section

PAGE = "hardware.md"
TEXT = (ROOT / "docs" / PAGE).read_text(encoding="utf-8")
LISTINGS = (ROOT / "tests/advertiser/hosts/README.md").read_text(encoding="utf-8")


def rows(text: str, first: str) -> list[list[str]]:
    """Return the cells of a table's rows, by the first cell of its head."""
    _, found, rest = text.partition(f"\n| {first} |")
    assert found, f"no table begins with {first!r}"
    lines = rest.split("\n\n", 1)[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def settings_table() -> list[list[str]]:
    return rows(TEXT.split("\n### Settings\n", 1)[1], "family")


def test_the_settings_have_a_column_each() -> None:
    """A setting that is added to the contract is added to the page."""
    head = TEXT.split("\n### Settings\n", 1)[1].split("\n| family |", 1)[1].splitlines()[0]
    assert {cell.strip() for cell in head.split("|")} - {"driver", "link", ""} == set(SETTING_NAMES)


@pytest.mark.parametrize("row", settings_table(), ids=lambda row: str(row[0]))
def test_the_settings_of_a_family_are_those_that_are_published(row: list[str]) -> None:
    """`can` in the inventory comes from the same table of drivers."""
    names = ("mac", "vlan", "qos", "min_tx_rate", "max_tx_rate", "trust", "spoofchk", "link_state", "guid")
    _, driver, link, *cells = row
    assert link in get_args(LinkType)
    assert set(cells) <= {"yes", "no"}
    said = {name for name, cell in zip(names, cells, strict=True) if cell == "yes"}
    assert said == settings_of(driver.strip("`"), cast("LinkType", link))


def test_every_check_of_the_command_is_on_the_page_with_its_question() -> None:
    """Open ones, which no source answers, in their own table; the others beside the command."""
    unknown = section(PAGE, "What no source can tell")
    known = section(PAGE, "Ask your own NIC").split("The harmless checks", 1)[1]
    for text, is_open in ((unknown, True), (known, False)):
        listed = [(check.strip("`"), question) for check, question in rows(text, "check")]
        assert listed == [(check.id, check.question) for check in CHECKS if check.open == is_open]


def test_every_unknown_cell_names_checks_of_the_command() -> None:
    """A question mark without a check would be a question that nobody can answer."""
    marks = re.findall(r"\? ((?:`[a-z.-]+`(?:, )?)+)", TEXT)
    named = [name for mark in marks for name in re.findall(r"`([^`]+)`", mark)]
    assert len(marks) > 10
    assert [name for name in named if name not in BY_ID] == []
    assert " ? " not in TEXT.replace("? `", "")


def test_every_listing_that_is_cited_is_in_the_repository() -> None:
    """By its number in the table of trees."""
    cited = {name for found in re.findall(r"listings? ((?:`\w+`(?:, )?)+)", TEXT) for name in re.findall(r"\w+", found)}
    assert len(cited) > 8
    assert {name for name in cited if f"`{name}`" not in LISTINGS} == set()
