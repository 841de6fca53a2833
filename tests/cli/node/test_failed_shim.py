"""What `mooring-node` installs against a shim that fails, how an operator turns it off, and what check says of it."""

from cli.node.plan.steps import LISTEN
from mooring.records.shim_bypass import ShimBypass, dump_shim_bypass
from tests.cli.node.conftest import NodeHost
from tests.cli.node.installing import run_install

UNIT = "/etc/systemd/system/mooring-shim-bypass.service"
RUNTIME = "unix:///run/containerd/containerd.sock"
START = f"ExecStart=/opt/mooring/bin/mooring-shim-bypass --listen {LISTEN} --runtime {RUNTIME}"


def test_the_unit_names_both_sockets_and_needs_no_configuration(kubeadm: NodeHost) -> None:
    """What has broken the shim may be its configuration."""
    run_install(kubeadm)
    assert START in kubeadm.text(UNIT).splitlines()
    assert "@" not in kubeadm.text(UNIT)
    wanted = kubeadm.root / "etc/systemd/system/multi-user.target.wants/mooring-shim-bypass.service"
    assert wanted.is_symlink()


def test_an_operator_turns_it_off_in_the_configuration(kubeadm: NodeHost) -> None:
    """The next install changes the unit and restarts it; without the line it is as before."""
    run_install(kubeadm)
    config = "/etc/mooring/config.yaml"
    before = kubeadm.text(config)
    kubeadm.write(config, before.replace("mooring-node:\n", "mooring-node:\n  failed_shim: wait\n"))
    assert f"{UNIT}: altered" in kubeadm.run("check")[1].replace("services     ", "")
    status, said = kubeadm.run("install", "--wheelhouse", str(kubeadm.root.parent / "first"))
    assert (status, "systemctl restart mooring-shim-bypass.service" in said) == (0, True)
    assert f"{START} --never" in kubeadm.text(UNIT).splitlines()
    assert kubeadm.run("check") == (0, "no findings: the installation is intact\n")
    kubeadm.write(config, before)
    assert kubeadm.run("install", "--wheelhouse", str(kubeadm.root.parent / "first"))[0] == 0
    assert START in kubeadm.text(UNIT).splitlines()


def test_a_first_install_can_turn_it_off(kubeadm: NodeHost) -> None:
    """It is kept, for the next time."""
    run_install(kubeadm, "first", "--failed-shim", "wait")
    assert "  failed_shim: wait\n" in kubeadm.text("/etc/mooring/config.yaml")
    assert f"{START} --never" in kubeadm.text(UNIT).splitlines()
    assert kubeadm.run("check")[0] == 0
    status, said = kubeadm.run("install", "--failed-shim", "never")
    assert (status, "'never' is not one of bypass, wait" in said) == (2, True)


def test_check_says_that_the_shim_is_bypassed_and_removal_takes_the_link(kubeadm: NodeHost) -> None:
    """The link is not the installer's; a shim that serves has no link there."""
    run_install(kubeadm)
    report = "/run/mooring/extract/shim-bypass.json"
    why = "mooring-cri-shim has not served for 15 s: journalctl -u mooring-cri-shim"
    kubeadm.write(report, dump_shim_bypass(ShimBypass("2026-11-22T14:00:00Z", why)))
    link = kubeadm.root / "run/mooring/cri.sock"
    link.symlink_to(RUNTIME.removeprefix("unix://"))
    status, said = kubeadm.run("check")
    assert (status, said.splitlines()[0]) == (1, f"shim         {report}: bypassed since 2026-11-22T14:00:00Z: {why}")
    assert kubeadm.run("remove")[0] == 0
    assert not link.is_symlink()
    assert not (kubeadm.root / report.removeprefix("/")).exists()
