"""What a real kernel says of links and routes, in a network namespace of its own, and sysfs of vdpa devices."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mooring.nic.host_facts import read_facts, read_vf

ASK = """
import json
from pathlib import Path
from mooring.nic.host_facts import read_facts
from mooring.nic.vf_users import uses_link
facts = read_facts(Path("/nowhere"), {}, [])
print(json.dumps({link.name: list(uses_link(link, facts)) for link in facts.links}))
"""


def uses(*commands: str) -> Any:
    """Run commands of `ip` in a new namespace with links d0 and d1; return how each link there is used."""
    links = [f"link add d{n} type veth peer name p{n}" for n in (0, 1)]
    up = [f"link set {name} up" for name in ("p0", "p1", "d0", "d1")]
    script = "".join(f"ip {command} || exit 1\n" for command in (*links, *up, *commands)) + 'exec "$@"'
    program = (sys.executable, "-c", ASK)
    done = subprocess.run(("unshare", "--net", "sh", "-c", script, "sh", *program), capture_output=True, check=True)
    return json.loads(done.stdout)


@pytest.mark.root
def test_links_that_are_up_have_no_uses_of_their_own() -> None:
    """Each has a connected and a link-local route, and is the other end of a pair."""
    found = uses("address add 10.0.0.1/24 dev d0", "address add 2001:db8::1/64 dev d0")
    assert set(map(tuple, found.values())) == {()}


@pytest.mark.root
def test_links_above_are_found() -> None:
    found = uses(
        "link add br0 type bridge",
        "link set d0 master br0",
        "link add link d1 name d1.7 type macvlan",
    )
    assert (found["d0"], found["d1"], found["br0"]) == (["port of br0"], ["macvlan d1.7"], [])


@pytest.mark.root
def test_routes_are_read_with_metric_table_and_every_hop() -> None:
    found = uses(
        "address add 10.0.0.1/24 dev d0",
        "address add 10.1.0.1/24 dev d1",
        "route add default via 10.0.0.2 metric 100",
        "route add default via 10.1.0.2 metric 200",
        "route add default via 10.1.0.2 table 1000",
        "route add 10.9.0.0/16 nexthop via 10.0.0.2 nexthop via 10.1.0.2",
        "route add blackhole 10.8.0.0/16",
        "-6 route add default via fe80::1 dev d1 metric 1024",
    )
    assert found["d0"] == ["IPv4 default route", "route to 10.9.0.0/16"]
    assert sorted(found["d1"]) == ["IPv4 default route of table 1000", "IPv6 default route", "route to 10.9.0.0/16"]


def test_vdpa_devices_are_found_below_their_function(tmp_path: Path) -> None:
    """mlx5_vdpa_dev_add of Linux 6.12 makes the VF's PCI function their parent; `vdpa dev add` gives any name."""
    function = tmp_path / "devices/pci0000:00/0000:04:00.3"
    (function / "vhost7").mkdir(parents=True)
    for kind, name, target in (("pci", "0000:04:00.3", function), ("vdpa", "vhost7", function / "vhost7")):
        folder = tmp_path / f"bus/{kind}/devices"
        folder.mkdir(parents=True)
        (folder / name).symlink_to(target)
    facts = read_facts(tmp_path, {}, [read_vf(tmp_path, "0000:04:00.3")])
    assert facts.vdpa["0000:04:00.3"] == ("vhost7",)
