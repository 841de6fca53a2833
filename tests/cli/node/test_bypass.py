"""The bypass: the kubelet speaks to the runtime itself until it is turned off, on every form of its configuration."""

import json
from dataclasses import replace

import pytest

from mooring.records.ledger import LedgerEntry, Netns, Original, dump_ledger_entry
from tests.cli.node.conftest import FLAGS, FLANNEL, FLANNEL_AT, NodeHost, Tree
from tests.cli.node.installing import HostOf, run_install
from tests.cli.node.kubelet_forms import FORMS, kubeadm_upgrade_node

_STATE = "var/lib/mooring/install/bypass.json"
_FLAGS_AT = "/var/lib/kubelet/kubeadm-flags.env"
_ENTRY = LedgerEntry(
    pci="0000:3b:00.2", pf="enp4s0f0", vf=1, phase="held", boot="b", uid="u", pod="ml/train-0", container="c",
    ifname="net1", netns=Netns("/n", 1), original=Original(),
)  # fmt: skip


@pytest.fixture(params=FORMS)
def installed(request: pytest.FixtureRequest, host_of: HostOf) -> tuple[NodeHost, Tree]:
    """Install on a host of one form; give the host and what it was before."""
    host = host_of({FLANNEL_AT: FLANNEL, **FORMS[request.param][0]})
    before = host.tree()
    run_install(host)
    return host, before


def _kubelet_files(tree: Tree) -> dict[str, str]:
    """Return the kubelet's files but for the link by which its unit wants the shim's."""
    own = {path: text for path, text in tree.items() if "kubelet" in path or path.startswith("etc/k")}
    return {path: text for path, text in own.items() if "kubelet.service.wants" not in path}


def test_a_bypass_gives_the_kubelet_its_own_files_back_and_its_end_the_shim(installed: tuple[NodeHost, Tree]) -> None:
    """Of the installation nothing but the kubelet's part is touched; off leaves what install had left."""
    host, before = installed
    through = host.tree()
    status, said = host.run("bypass on")
    assert (status, said.splitlines()[-1]) == (0, "bypass       on")
    past = host.tree()
    assert _kubelet_files(past) == _kubelet_files(before)
    assert {path for path in past if past[path] != through.get(path)} <= {*_kubelet_files(before), _STATE}
    assert host.run("bypass on") == (0, "bypass       nothing to do\n")
    assert host.run("bypass off")[0] == 0
    assert host.tree() == through
    assert host.run("bypass off") == (0, "bypass       nothing to do\n")
    assert host.run("check") == (0, "no findings: the installation is intact\n")


def test_removal_under_a_bypass_leaves_what_was_there_before(installed: tuple[NodeHost, Tree]) -> None:
    """The bypass ends with the installation."""
    host, before = installed
    assert host.run("bypass on")[0] == 0
    assert host.run("remove")[0] == 0
    assert host.tree() == before


def test_check_reports_a_bypass_as_such(kubeadm: NodeHost) -> None:
    """Not as a file that was altered; the advertiser's report says it too, and a restart of the shim ends nothing."""
    run_install(kubeadm)
    kubeadm.run("bypass on")
    status, said = kubeadm.run("check")
    assert (status, said.count("\n")) == (1, 2)
    assert "kubelet      /var/lib/mooring/install/bypass.json: the bypass is on since 20" in said
    kubeadm.run("check", "--report")
    report = json.loads(kubeadm.text("/run/mooring/extract/node-check.json"))
    assert report["kubelet"] == "bypass"
    kubeadm.write(_FLAGS_AT, FLAGS.replace("containerd/containerd.sock", "mooring/cri.sock"))
    assert f"{_FLAGS_AT}: names the shim although the bypass is on" in kubeadm.run("check")[1]
    assert kubeadm.run("bypass on")[0] == 0
    assert kubeadm.text(_FLAGS_AT) == FLAGS


@pytest.mark.parametrize("command", ["install", "upgrade"])
def test_install_and_upgrade_leave_a_bypass_on(kubeadm: NodeHost, command: str) -> None:
    """They do all else; the kubelet waits for its operator's word."""
    run_install(kubeadm)
    kubeadm.run("bypass on")
    (kubeadm.root / "etc/udev/rules.d/79-mooring-vfs.rules").unlink()
    wheels = kubeadm.root.parent / "first" if command == "install" else kubeadm.wheelhouse("second")
    status, said = kubeadm.run(command, "--wheelhouse", str(wheels))
    assert status == 0, said
    assert "kubelet      nothing to do" in said
    assert kubeadm.text(_FLAGS_AT) == FLAGS
    assert kubeadm.run("check")[1].endswith("\n1 finding\n")
    assert kubeadm.run("bypass off")[0] == 0
    assert kubeadm.run("check")[0] == 0


def test_a_bypass_is_refused_while_pods_hold_vfs_unless_forced(kubeadm: NodeHost) -> None:
    """Each pod is listed with its VF, forced or not; a ledger entry that cannot be read counts as well."""
    run_install(kubeadm)
    kubeadm.write("/var/lib/mooring/vfs/0000:3b:00.2.json", dump_ledger_entry(_ENTRY))
    kubeadm.write("/var/lib/mooring/vfs/0000:3b:00.3.json", "{")
    before = kubeadm.tree()
    status, said = kubeadm.run("bypass on")
    assert (status, kubeadm.tree()) == (1, before)
    assert "held         ml/train-0 has VF 0000:3b:00.2\nheld         VF 0000:3b:00.3\n" in said
    assert "pods of this node have 2 VFs, and a container that restarts would lack its devices" in said
    assert kubeadm.run("bypass on", "--force")[0] == 0
    assert kubeadm.text(_FLAGS_AT) == FLAGS
    entry = replace(_ENTRY, pci="0000:3b:00.4", vf=2)
    kubeadm.write("/var/lib/mooring/vfs/0000:3b:00.4.json", dump_ledger_entry(entry))
    assert kubeadm.run("bypass on")[0] == 0


@pytest.mark.parametrize("word", ["on", "off"])
def test_a_bypass_that_was_cut_short_is_reported_and_repeated_with_the_restart(kubeadm: NodeHost, word: str) -> None:
    """The files may be right already while the kubelet still runs with the old ones."""
    run_install(kubeadm)
    if word == "on":
        kubeadm.run("bypass on")
    kubeadm.write(_STATE, json.dumps({"v": 1, "state": f"turning {word}", "since": "2026-11-22T14:00:00Z"}))
    assert f"turning the bypass {word} was interrupted: run mooring-node bypass {word}" in kubeadm.run("check")[1]
    assert "systemctl try-restart kubelet.service" in kubeadm.run("bypass", word)[1]
    assert kubeadm.run("bypass", word) == (0, "bypass       nothing to do\n")


def test_undo_of_a_run_that_was_to_end_a_bypass_leaves_it_on(kubeadm: NodeHost) -> None:
    """Its open change is the kubelet's way to the shim."""
    run_install(kubeadm)
    kubeadm.run("bypass on")
    journal = json.loads(kubeadm.text("/var/lib/mooring/install/journal.json"))
    (edit,) = (change for step, change in journal["settled"] if step == "kubelet")
    kubeadm.write("/var/lib/mooring/install/journal.json", json.dumps({**journal, "open": [["kubelet", edit]]}))
    kubeadm.write(_STATE, json.dumps({"v": 1, "state": "turning off", "since": "2026-11-22T14:00:00Z"}))
    assert kubeadm.run("undo")[0] == 0
    assert kubeadm.text(_FLAGS_AT) == FLAGS
    assert "the bypass is on since 2026-11-22T14:00:00Z" in kubeadm.run("check")[1]


def test_a_bypass_ends_whatever_kubeadm_has_written_meanwhile(host_of: HostOf) -> None:
    """An upgrade under a bypass keeps the runtime's socket; the end of the bypass finds the new place."""
    host = host_of({FLANNEL_AT: FLANNEL, **FORMS["kubeadm before 1.34"][0]})
    run_install(host)
    host.run("bypass on")
    kubeadm_upgrade_node(host)
    assert "1 finding" in host.run("check")[1]
    assert host.run("bypass off")[0] == 0
    assert host.run("check") == (0, "no findings: the installation is intact\n")
    kubeadm_upgrade_node(host)
    assert host.run("check")[0] == 0
    host.run("bypass on")
    kubeadm_upgrade_node(host)
    assert "mooring" not in "".join(_kubelet_files(host.tree()).values())


def test_a_dry_run_of_the_bypass_names_the_files(kubeadm: NodeHost) -> None:
    """Nothing changes."""
    run_install(kubeadm)
    before = kubeadm.tree()
    status, said = kubeadm.run("bypass on", "--dry-run")
    assert (status, kubeadm.tree()) == (0, before)
    assert (
        f"kubelet      would restore {_FLAGS_AT}: --container-runtime-endpoint=unix:///run/mooring/cri.sock -> " in said
    )


def test_a_dry_run_of_a_bypass_that_is_on_names_nothing(kubeadm: NodeHost) -> None:
    """Nothing would be done."""
    run_install(kubeadm)
    kubeadm.run("bypass on")
    assert kubeadm.run("bypass on", "--dry-run") == (0, "")


@pytest.mark.parametrize("text", ["{", "[" * 100_000])
def test_a_bypass_that_cannot_be_read_is_a_finding_and_told_to_the_advertiser(kubeadm: NodeHost, text: str) -> None:
    """Whether the kubelet is to speak to the shim is not known then; the check goes on with all else."""
    run_install(kubeadm)
    kubeadm.write(_STATE, text)
    status, said = kubeadm.run("check")
    assert (status, "bypass.json' cannot be read" in said, said.splitlines()[-1]) == (1, True, "1 finding")
    assert kubeadm.run("check", "--report")[0] == 0
    report = json.loads(kubeadm.text("/run/mooring/extract/node-check.json"))
    assert (report["kubelet"], "cannot be read" in report["why"]) == ("unknown", True)
    assert kubeadm.run("bypass off")[0] == 1


def test_nothing_can_be_bypassed_where_nothing_is_installed(kubeadm: NodeHost) -> None:
    """Nothing is left on the host either."""
    before = kubeadm.tree()
    status, said = kubeadm.run("bypass on")
    assert (status, kubeadm.tree()) == (1, before)
    assert "Mooring is not installed on this node" in said


def test_the_word_after_bypass_is_on_or_off(kubeadm: NodeHost) -> None:
    """Anything else is wrong usage, as is a word after another command."""
    for command in ("bypass", "check on"):
        with pytest.raises(SystemExit, match="2"):
            kubeadm.run(command)
