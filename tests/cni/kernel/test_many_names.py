"""Names that a pod gives to one of its links do not hide the links behind it."""

import subprocess

import pytest

from cni.kernel import netlink, netns

pytestmark = pytest.mark.root


def test_a_link_with_many_names_does_not_end_the_list(other_netns: str) -> None:
    """60 names of 124 characters: more than a message of the usual size, and the kernel says nothing of it."""
    inside = ("ip", "-n", "mooring-cni-pod2", "link")
    subprocess.run((*inside, "add", "early0", "type", "veth", "peer", "name", "later0"), check=True)
    for number in range(60):
        subprocess.run((*inside, "property", "add", "dev", "lo", "altname", f"{number:03}" + "n" * 121), check=True)
    listed = {link.name: link for link in netns.run_in(other_netns, netlink.links)}
    assert {"lo", "early0", "later0"} <= listed.keys()
    assert len(listed["lo"].altnames) == 60
