"""What is left of an installation when kubeadm has upgraded the node, and what check and remove make of it."""

import json
from typing import Any

import pytest

from cli.node.plan.kubelet.command_line import CONFIG
from cli.node.plan.kubelet.endpoint import INSTANCE
from cli.node.plan.steps import LISTEN
from tests.cli.node.conftest import FLAGS, FLANNEL, FLANNEL_AT, NodeHost
from tests.cli.node.installing import HostOf, run_install
from tests.cli.node.kubelet_forms import FORMS, RUNTIME, kubeadm_upgrade_node

_KUBEADM = [name for name in FORMS if name.startswith("kubeadm")]


def _host(host_of: HostOf, form: str) -> NodeHost:
    return host_of({FLANNEL_AT: FLANNEL, **FORMS[form][0]})


@pytest.mark.parametrize("form", _KUBEADM)
def test_the_kubelet_still_uses_the_shim_after_kubeadm_upgrade_node(host_of: HostOf, form: str) -> None:
    """kubeadm writes the configuration from its own file, which names the shim's socket since the installation."""
    host = _host(host_of, form)
    run_install(host)
    kubeadm_upgrade_node(host)
    assert FORMS[form][1] in host.text(CONFIG)
    assert host.run("check") == (0, "no findings: the installation is intact\n")


@pytest.mark.parametrize("form", _KUBEADM)
def test_removal_after_a_kubeadm_upgrade_leaves_nothing_that_names_the_shim(host_of: HostOf, form: str) -> None:
    """kubeadm may have moved our flag into its file: the kubelet would look for a socket that nobody serves."""
    host = _host(host_of, form)
    run_install(host)
    kubeadm_upgrade_node(host)
    assert host.run("remove")[0] == 0
    assert [path for path, text in host.tree().items() if "mooring" in text] == []
    kubeadm_upgrade_node(host)
    assert "/run/" in host.text(CONFIG)
    assert "mooring" not in host.text(CONFIG)


def test_check_tells_a_kubelet_past_the_shim_from_a_file_that_only_kubeadm_reads(host_of: HostOf) -> None:
    """Both are findings. The report for the advertiser names the first as another socket, the second not."""
    host = _host(host_of, "kubeadm from 1.34 on")
    run_install(host)
    host.write(INSTANCE, f'containerRuntimeEndpoint: "{RUNTIME}"\n')
    assert f"{INSTANCE}: does not contain 'containerRuntimeEndpoint: \"{LISTEN}\"'" in host.run("check")[1]
    assert _reported(host)["kubelet"] == "shim"
    kubeadm_upgrade_node(host)
    assert host.run("check")[0] == 1
    report = _reported(host)
    assert (report["kubelet"], report["why"]) == (
        "runtime",
        f"{CONFIG}: the kubelet is configured with {RUNTIME}, not {LISTEN}",
    )
    assert {each["subject"] for each in report["findings"]} == {CONFIG, INSTANCE}
    assert host.run("install", "--wheelhouse", str(host.root.parent / "first"))[0] == 0
    assert _reported(host) | {"at": ""} == {"v": 1, "at": "", "kubelet": "shim", "why": "", "findings": []}


def test_the_report_ends_well_and_prints_only_what_is_new(host_of: HostOf) -> None:
    """The timer's unit does not fail at each finding, and its log has each once."""
    host = host_of({FLANNEL_AT: FLANNEL, "/var/lib/kubelet/kubeadm-flags.env": FLAGS})
    run_install(host)
    assert host.run("check", "--report") == (0, "no findings: the installation is intact\n")
    assert host.run("check", "--report") == (0, "")
    host.write("/var/lib/kubelet/kubeadm-flags.env", FLAGS)
    status, said = host.run("check", "--report")
    assert (status, said.splitlines()[-1]) == (0, "1 finding")
    assert host.run("check", "--report") == (0, "")


def test_nothing_is_reported_while_a_run_is_under_way(host_of: HostOf) -> None:
    """Its journal is open; one that has stayed open for long is a run that was killed, which is a finding."""
    host = _host(host_of, "configuration")
    run_install(host)
    journal = json.loads(host.text("/var/lib/mooring/install/journal.json"))
    host.write("/var/lib/mooring/install/journal.json", json.dumps({**journal, "open": []}))
    assert "in progress" in host.run("check", "--report")[1]
    assert not (host.root / "run/mooring/extract/node-check.json").exists()
    assert "a run was killed" in host.run("check")[1]


def _reported(host: NodeHost) -> dict[str, Any]:
    assert host.run("check", "--report")[0] == 0
    report: dict[str, Any] = json.loads(host.text("/run/mooring/extract/node-check.json"))
    return report
