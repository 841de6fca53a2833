"""A netdev's names are restored beside a udevd that is naming it."""

import subprocess
from pathlib import Path

import pytest

from cni.kernel import netlink, netns
from cni.kernel.sysfs import Sysfs
from cni.vf.detach import original_settings, restore
from cni.vf.ledger import Ledger
from cni.vf.node import Node
from mooring.nic.settings import VfSettings
from mooring.records.ledger import LedgerEntry, Netns, Original
from tests.cni.no_vf_settings import NoVfSettings

pytestmark = pytest.mark.root

KERNELS, LASTING = "veth0", "enp59s0f0v0"


def test_an_altname_becomes_the_name_before_it_is_removed(
    other_netns: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As udevd does with the name that it has given as an altname before: the whole is begun again."""
    inside = ("ip", "-n", "mooring-cni-pod2", "link")
    subprocess.run((*inside, "add", KERNELS, "type", "veth", "peer", "name", "veth1"), check=True)
    subprocess.run((*inside, "property", "add", "dev", KERNELS, "altname", LASTING), check=True)
    link = netns.run_in(other_netns, lambda: netlink.find(KERNELS))
    assert link is not None
    node = Node(Sysfs(tmp_path), Ledger(tmp_path), tmp_path, NoVfSettings(), "b")
    original = Original(name=LASTING, netdev_mac=link.mac, mtu=link.mtu)
    entry = LedgerEntry("0000:3b:01.0", "eth0", 0, "held", "b", "u1", "ns/p", "c", "net1", Netns("/n", 1), original)
    remove, removed = netlink.remove_altname, []

    def name_before(index: int, altname: str) -> None:
        """Rename the link as udevd does, once, before its altname is removed."""
        removed.append(altname)
        if len(removed) == 1:
            remove(index, altname)
            netlink.rename(index, altname)
        remove(index, altname)

    monkeypatch.setattr(netlink, "remove_altname", name_before)
    monkeypatch.setattr(restore, "netdev_of", lambda *_: netlink.get(link.index))
    monkeypatch.setattr(original_settings, "restore", lambda *_: VfSettings())
    netns.run_in(other_netns, lambda: restore.restore(node, entry))
    named = netns.run_in(other_netns, lambda: netlink.get(link.index))
    assert named is not None
    assert (named.name, named.altnames) == (LASTING, ())
    assert removed == [LASTING]
