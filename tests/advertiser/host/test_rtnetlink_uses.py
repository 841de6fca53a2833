"""How the host itself uses a netdev, asked of a real kernel in a network namespace of its own."""

import json
import subprocess
import sys
from typing import Any

import pytest

pytestmark = pytest.mark.root
ASK = "import json, sys; from advertiser.host import rtnetlink; print(json.dumps(rtnetlink.{}(sys.argv[1])))"


def uses(netdev: str, *commands: str) -> list[str]:
    """Run commands of `ip` in a new namespace with two links, d0 and d1; return the uses of one of its links."""
    found: list[str] = ask("host_uses", netdev, *commands)
    return found


def ask(function: str, netdev: str, *commands: str) -> Any:
    first = ("link add d0 type veth peer name d1", "link set d0 up", "link set d1 up", *commands)
    script = "".join(f"ip {command} || exit 1\n" for command in first) + 'exec "$@"'
    program = (sys.executable, "-c", ASK.format(function), netdev)
    done = subprocess.run(("unshare", "--net", "sh", "-c", script, "sh", *program), capture_output=True, check=True)
    return json.loads(done.stdout)


def test_a_link_of_its_own_has_no_uses() -> None:
    """Its link-local address does not count, nor what another link has."""
    assert uses("d0", "address add 10.0.0.1/24 dev d1") == []
    assert uses("no-such-link") == []


def test_addresses_default_routes_and_links_on_top_are_named() -> None:
    """All of them depend on the link's MTU."""
    found = uses(
        "d0",
        "address add 10.0.0.1/24 dev d0",
        "route add default via 10.0.0.2",
        "link add link d0 name d0.7 type macvlan",
    )
    assert found == ["address 10.0.0.1/24", "IPv4 default route", "macvlan d0.7"]


def test_a_port_of_a_bridge_is_named_with_it() -> None:
    assert uses("d0", "link add br0 type bridge", "link set d0 master br0") == ["port of br0"]


def test_the_kind_of_the_link_above_is_told() -> None:
    """By IFLA_INFO_SLAVE_KIND (rtnl_link_slave_info_fill); a team's is "team", which few kernels have for a test."""
    assert ask("master_kind", "d0", "link add br0 type bridge", "link set d0 master br0") == "bridge"
    assert (ask("master_kind", "d0"), ask("master_kind", "no-such-link")) == (None, None)
