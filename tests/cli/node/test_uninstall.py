"""What a removal takes along, keeps aside and refuses."""

import shutil

import pytest

from tests.cli.node.conftest import FLAGS, KUBEADM, NodeHost
from tests.cli.node.installing import HostOf, run_install


def test_removal_keeps_aside_what_others_have_changed_since(kubeadm: NodeHost) -> None:
    """An operator's own lines in our files are saved; later edits in the kubelet's file stay where they are."""
    run_install(kubeadm)
    config = kubeadm.text("/etc/mooring/config.yaml") + "metrics_addr: :9000\n"
    kubeadm.write("/etc/mooring/config.yaml", config)
    flags = "/var/lib/kubelet/kubeadm-flags.env"
    kubeadm.write(flags, kubeadm.text(flags).replace("--v=2", "--v=4"))
    assert kubeadm.run("remove")[0] == 0
    assert kubeadm.text("/etc/mooring/config.yaml.mooring-saved") == config
    assert kubeadm.text(flags) == FLAGS.replace("--v=2", "--v=4")


def test_what_resists_removal_is_named_and_left_to_undo(host_of: HostOf) -> None:
    """All else is taken back at once; when the reason is gone, undo does the rest."""
    host = host_of({**KUBEADM, "/etc/modules-load.d/mooring.conf": "# a file of before\n"})
    before = host.tree()
    run_install(host)
    there = host.root / "etc/modules-load.d/mooring.conf"
    there.unlink()
    there.mkdir()
    status, said = host.run("remove")
    assert status == 1
    assert "NOT undone" in said
    assert not (host.root / "opt/mooring/current").is_symlink()
    there.rmdir()
    assert host.run("undo")[0] == 0
    assert host.tree() == before


def test_nothing_is_removed_under_pods_that_have_vfs(kubeadm: NodeHost) -> None:
    """The pods' VFs could not be given back any more: removal is refused with their names, unless forced."""
    run_install(kubeadm)
    kubeadm.write("/var/lib/mooring/vfs/0000:3b:00.2.json", "{}")
    installed = kubeadm.tree()
    status, said = kubeadm.run("remove")
    assert (status, kubeadm.tree()) == (1, installed)
    assert "0000:3b:00.2" in said
    assert kubeadm.run("remove", "--force")[0] == 0


def test_an_installation_without_its_journal_is_not_removed_in_silence(kubeadm: NodeHost) -> None:
    """Nobody knows what to restore: nothing is changed, and the reason is printed."""
    run_install(kubeadm)
    (kubeadm.root / "var/lib/mooring/install/journal.json").unlink()
    installed = kubeadm.tree()
    for flags in ((), ("--dry-run",)):
        status, said = kubeadm.run("remove", *flags)
        assert (status, kubeadm.tree()) == (1, installed)
        assert "'/var/lib/mooring/install/journal.json', which has what its installation changed, is missing" in said


@pytest.mark.parametrize("name", ["next.yaml", "offer.yaml"])
def test_the_clusters_offer_waits_for_an_installation_that_succeeds(name: str, kubeadm: NodeHost) -> None:
    """It is handed over once, before the installation perhaps, and init may have taken it; a removal takes it along."""
    kubeadm.write(f"/var/lib/mooring/offer/{name}", "v: 1\n")
    kubeadm.write("/opt/mooring/pyvenv.cfg/obstacle", "")
    status, said = kubeadm.run("install", "--wheelhouse", str(kubeadm.wheelhouse("first")))
    assert (status, "rollback" in said) == (1, True), said
    assert kubeadm.text("/var/lib/mooring/offer/next.yaml") == "v: 1\n"
    shutil.rmtree(kubeadm.root / "opt/mooring")
    run_install(kubeadm, "second")
    assert kubeadm.text("/var/lib/mooring/offer/next.yaml") == "v: 1\n"
    assert kubeadm.run("remove")[0] == 0
    assert not (kubeadm.root / "var/lib/mooring").exists()


def test_a_pods_record_goes_with_the_installation_unless_the_pod_has_vfs(kubeadm: NodeHost) -> None:
    """The shim, which sweeps ended pods' records, is gone; a record that VFs were given by stays, with its note."""
    record, note = (kubeadm.root / "var/lib/mooring/pods" / name for name in ("u.json", "u.unprivileged"))
    for held in (False, True):
        run_install(kubeadm, f"held-{held}")
        kubeadm.write("/var/lib/mooring/pods/u.json", "{}")
        kubeadm.write("/var/lib/mooring/pods/u.unprivileged", "")
        if held:
            kubeadm.write("/var/lib/mooring/vfs/0000:3b:00.2.json", "{}")
        kubeadm.run("remove", "--force")
        assert record.exists() == note.exists() == held


def test_what_init_and_shim_left_for_add_goes_with_the_installation(kubeadm: NodeHost) -> None:
    """The state folder with it, unless VFs are held."""
    run_install(kubeadm)
    kubeadm.write("/var/lib/mooring/offer.json", "{}")
    kubeadm.write("/var/lib/mooring/sandbox-marks", "1.0")
    assert kubeadm.run("remove")[0] == 0
    assert not (kubeadm.root / "var/lib/mooring").exists()


def test_a_removed_shim_no_longer_tells_that_it_has_started(kubeadm: NodeHost) -> None:
    """The scheduler gives the VFs of a node whose shim has started in this boot; the advertiser's version stays."""
    run_install(kubeadm)
    for program in ("mooring-cri-shim", "mooring-cni", "mooring-advertiser"):
        kubeadm.write(f"/run/mooring/version/{program}", "1.0")
    assert kubeadm.run("remove")[0] == 0
    assert sorted(path.name for path in (kubeadm.root / "run/mooring/version").iterdir()) == ["mooring-advertiser"]
