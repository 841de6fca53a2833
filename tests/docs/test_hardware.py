"""docs/hardware.md: its settings are those that the advertiser publishes, its questions those of the hardware test.

The tables about families go on in the README of the simulated NICs' personalities.
"""

import re
from collections import defaultdict

import pytest

from advertiser.inventory import driver_settings
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


def ethernet_drivers() -> dict[str, frozenset[str]]:
    """Return what each driver takes on Ethernet, as the page has it: all settings but the named ones."""
    settings = TEXT.split("\n### Settings\n", 1)[1].split("\n\nOn InfiniBand", 1)[0]
    head, _, items = settings.partition("\n\n- ")
    every = frozenset(re.findall(r"`(\w+)`", head.partition("named ones:")[2].partition(". Never")[0]))
    found: dict[str, frozenset[str]] = {}
    for item in f"\n{items}".split("\n- "):
        drivers, _, lacking = item.removeprefix("- ").partition(":")
        named = frozenset(re.findall(r"`(\w+)`", lacking))
        assert named <= every, item
        found |= dict.fromkeys(re.findall(r"`(\w+)`", drivers), every - named)
    return found


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


def test_the_settings_of_the_drivers_are_those_that_are_published() -> None:
    """`can` in the inventory comes from the same list of drivers; a driver that is added is added to the page."""
    drivers = ethernet_drivers()
    assert {driver: published(driver, "ethernet") for driver in drivers} == drivers
    assert drivers.keys() == driver_settings._BY_DRIVER.keys() - {"simvf"}
    assert frozenset[str]().union(*drivers.values()) | {"guid"} == set(SETTING_NAMES)


@pytest.mark.parametrize("driver", sorted(ethernet_drivers()))
def test_on_infiniband_only_mlx5_takes_settings(driver: str) -> None:
    """As the sentence below the list says."""
    expected = frozenset({"guid", "link_state"}) if driver == "mlx5_core" else frozenset()
    assert published(driver, "infiniband") == expected


def test_every_check_of_the_command_is_on_the_page() -> None:
    """Open ones, which no source answers, in their own table; the others beside the command."""
    unknown = section(PAGE, "What no source can tell")
    known = section(PAGE, "Ask your own NIC").split("The harmless checks", 1)[1]
    for text, is_open in ((unknown, True), (known, False)):
        items = re.findall(r"^- ((?:`[a-z.-]+`(?:,\s+)?)+):", text, re.MULTILINE)
        listed = [check for item in items for check in re.findall(r"`([^`]+)`", item)]
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


def families() -> dict[str, list[str]]:
    """Return the cells of each family in the three tables."""
    heads = ("The functions, and what", "## Discovery and VFs", "## RDMA, isolation, restoring")
    tables = [rows(FAMILIES.split(head, 1)[1], "family") for head in heads]
    assert [len(table) for table in tables] == [11, 11, 11]
    found: dict[str, list[str]] = defaultdict(list)
    for family, *cells in (row for table in tables for row in table):
        found[family] += cells
    return found


def test_every_cell_about_a_family_names_its_source() -> None:
    """Driver source, listing, personality or not known: a cell that says none of them is a belief."""
    assert [cell for cells in families().values() for cell in cells if not SOURCE.search(cell)] == []


def test_the_page_counts_the_cells_that_the_vendors_driver_executed() -> None:
    """By family; the other families have none."""
    counted = {
        family: f"{sum('**executed**' in c for c in cells)} of {len(cells)}" for family, cells in families().items()
    }
    item = " ".join(section(PAGE, "Each family").split("- **executed**", 1)[1].split("\n- ", 1)[0].split())
    written = dict(re.findall(r"(mlx5 \w+) (\d+ of \d+)", item))
    assert written == {family: count for family, count in counted.items() if not count.startswith("0 ")}
