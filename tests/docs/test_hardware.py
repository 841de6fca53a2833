"""docs/hardware.md: its settings are those that the advertiser publishes, its questions those of the hardware test.

The tables about families go on in the README of the simulated NICs' personalities.
"""

import re
from typing import cast, get_args

import pytest

from advertiser.inventory.build_inventory import build_inventory
from advertiser.inventory.facts import ClusterFacts, Host, Netdev, PciFunction, RdmaDevice, RdmaPort, Vf
from advertiser.inventory.offer import EVERYTHING
from cli.node.hardware.plan.checks import BY_ID, CHECKS
from mooring.names import LinkType
from mooring.nic.settings import SETTING_NAMES
from tests.docs.pages import ROOT, section

PAGE = "hardware.md"
TEXT = (ROOT / "docs" / PAGE).read_text(encoding="utf-8")
FAMILIES = (ROOT / "devcluster/hosts/personalities/README.md").read_text(encoding="utf-8")
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


def published(driver: str, link: LinkType) -> frozenset[str]:
    """Return `can` of a PF with this driver, as its node's inventory has it."""
    # ARPHRD_ETHER and ARPHRD_INFINIBAND.
    netdev = Netdev("p0", type="1" if link == "ethernet" else "32", speed="100000", operstate="up", phys_switch_id="01")
    function = PciFunction(
        "0000:3b:00.0",
        *(True, "1", "1", "2", "1", driver),
        netdevs=(netdev,),
        rdma=(RdmaDevice("r0", (RdmaPort("100 Gb/sec (4X EDR)", "4: ACTIVE"),)),),
        vfs={0: Vf("0000:3b:00.2", exists=True, driver=driver, netdev=True, rdma=True)},
    )
    result = build_inventory(Host("boot", (function,)), EVERYTHING, ClusterFacts(), "n1")
    (pf,) = result.inventory.pfs
    return pf.can


@pytest.mark.parametrize("row", settings_table(), ids=lambda row: str(row[0]))
def test_the_settings_of_a_family_are_those_that_are_published(row: list[str]) -> None:
    """`can` in the inventory comes from the same table of drivers; the right row is in the failure's message."""
    names = ("mac", "vlan", "qos", "min_tx_rate", "max_tx_rate", "trust", "spoofchk", "link_state", "guid")
    family, driver, link, *_ = row
    assert link in get_args(LinkType)
    can = published(driver.strip("`"), cast("LinkType", link))
    expected = [family, driver, link, *("yes" if name in can else "no" for name in names)]
    assert row == expected, f"| {' | '.join(expected)} |"


def test_every_check_of_the_command_is_on_the_page() -> None:
    """Open ones, which no source answers, in their own table; the others beside the command."""
    unknown = section(PAGE, "What no source can tell")
    known = section(PAGE, "Ask your own NIC").split("The harmless checks", 1)[1]
    for text, is_open in ((unknown, True), (known, False)):
        listed = [check for cell, _ in rows(text, "check") for check in re.findall(r"`([^`]+)`", cell)]
        assert sorted(listed) == sorted(check.id for check in CHECKS if check.open == is_open)


def test_every_unknown_cell_names_checks_of_the_command() -> None:
    """A question mark without a check would be a question that nobody can answer."""
    marks = re.findall(r"\? ((?:`[a-z.-]+`(?:, )?)+)", TEXT + FAMILIES)
    named = [name for mark in marks for name in re.findall(r"`([^`]+)`", mark)]
    assert len(marks) > 10
    assert [name for name in named if name not in BY_ID] == []
    assert " ? " not in (TEXT + FAMILIES).replace("? `", "")


def test_every_listing_that_is_cited_is_in_the_repository() -> None:
    """By its number in the table of trees."""
    cited = {
        name for found in re.findall(r"listings? ((?:`\w+`(?:, )?)+)", FAMILIES) for name in re.findall(r"\w+", found)
    }
    assert len(cited) > 8
    assert {name for name in cited if f"`{name}`" not in LISTINGS} == set()


# A function or file of a driver, a listing or a check by its name, a personality. The table of settings is by `can`.
# Of BlueField, the row of mlx5 Ethernet.
SOURCE = re.compile(r"`[…\w*.-]+`|simulated|as mlx5 Ethernet")


def test_every_cell_about_a_family_names_its_source() -> None:
    """Driver source, listing, personality or not known: a cell that says none of them is a belief."""
    heads = ("The functions, and what", "## Discovery and VFs", "## RDMA, isolation, restoring")
    tables = [rows((TEXT + FAMILIES).split(head, 1)[1], "family") for head in heads]
    assert [len(table) for table in tables] == [11, 11, 11]
    assert [cell for table in tables for _, *cells in table for cell in cells if not SOURCE.search(cell)] == []
