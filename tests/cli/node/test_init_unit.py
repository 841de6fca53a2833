"""The unit that makes VFs, with what starts it; and a node of a release that had another one."""

import pytest

from cli.node import journal as journals
from cli.node.journal import Journal
from cli.node.plan import init_unit
from cli.node.plan.states import File, Link, PathChange
from mooring.records import handed_offer
from mooring.records.run_folder import BOUND_PFS
from tests.cli.node.conftest import NodeHost
from tests.cli.node.installing import run_install

UNITS = "/etc/systemd/system"
SERVICE, PATH = (f"{UNITS}/{name}" for name in (init_unit.SERVICE, init_unit.PATH))
EARLIER, WANTED = f"{UNITS}/{init_unit.EARLIER}", f"{UNITS}/multi-user.target.wants/{init_unit.EARLIER}"


@pytest.mark.parametrize(
    ("advertiser", "command"), [("daemonset", "mooring-advertiser init --handed-over"), ("unit", "init")]
)
def test_every_node_has_the_unit_and_what_starts_it(kubeadm: NodeHost, advertiser: str, command: str) -> None:
    """Where no DaemonSet hands an offer over the unit reads the operator's own file."""
    run_install(kubeadm, "first", "--advertiser", advertiser)
    (started,) = (line for line in kubeadm.text(SERVICE).splitlines() if line.startswith("ExecStart="))
    assert started.endswith(command)
    for name in (init_unit.SERVICE, init_unit.PATH):
        assert (kubeadm.root / f"{UNITS}/multi-user.target.wants/{name}".lstrip("/")).is_symlink()
    # An offer that nobody takes would start the unit again without end.
    assert ("next.yaml" in kubeadm.text(PATH)) == (advertiser == "daemonset")
    assert 'ACTION!="bind"' in kubeadm.text(init_unit.RULES)
    assert kubeadm.run("check")[0] == 0


def test_unit_rule_and_program_name_the_same_paths(kubeadm: NodeHost) -> None:
    """What udev and the init container leave is what systemd watches, and what `init` takes."""
    run_install(kubeadm)
    watched = [line for line in kubeadm.text(PATH).splitlines() if "=/" in line]
    assert f"PathExists=/var/lib/mooring/{handed_offer.NEXT}" in watched
    assert f"DirectoryNotEmpty=/run/mooring/{BOUND_PFS}" in watched
    assert f"/run/mooring/{BOUND_PFS}/%k" in kubeadm.text(init_unit.RULES)


def test_the_unit_of_an_earlier_release_is_replaced(kubeadm: NodeHost) -> None:
    """Both would make VFs at a boot. The removal leaves nothing of either."""
    before = kubeadm.tree()
    run_install(kubeadm, "first", "--advertiser", "unit")
    text = "[Service]\nExecStart=/opt/mooring/bin/mooring-advertiser init\n"
    kubeadm.write(EARLIER, text)
    link = Link(f"../{init_unit.EARLIER}")
    (kubeadm.root / WANTED.lstrip("/")).symlink_to(link.target)
    journal = journals.read(kubeadm.root)
    assert journal is not None
    made = (PathChange(EARLIER, None, File(text)), PathChange(WANTED, None, link))
    journals.write(kubeadm.root, Journal((*journal.settled, *(("services", change) for change in made))))
    status, said = kubeadm.run("check")
    assert (status, f"{EARLIER}: altered" in said) == (1, True)
    run_install(kubeadm, "second", "--advertiser", "unit", command="upgrade")
    assert not (kubeadm.root / EARLIER.lstrip("/")).exists()
    assert not (kubeadm.root / WANTED.lstrip("/")).is_symlink()
    assert kubeadm.run("check")[0] == 0
    assert kubeadm.run("remove")[0] == 0
    assert kubeadm.tree() == before


def test_offers_go_with_the_installation(kubeadm: NodeHost) -> None:
    """So does the answer that makes the init container wait for the unit."""
    run_install(kubeadm)
    for name in (handed_offer.NEXT, handed_offer.CURRENT):
        kubeadm.write(f"/var/lib/mooring/{name}", "v: 1\npfs: []\n")
    kubeadm.write(f"/run/mooring/{handed_offer.RESULT}", "{}")
    assert kubeadm.run("remove")[0] == 0
    assert not (kubeadm.root / "var/lib/mooring").exists()
    assert not (kubeadm.root / "run/mooring" / handed_offer.RESULT).exists()
