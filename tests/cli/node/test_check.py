"""What `mooring-node check` finds on hosts below a folder."""

import json
from dataclasses import replace

import pytest

from cli.node import journal
from cli.node.plan.steps import LISTEN
from mooring.gpu import device_plugins
from mooring.records.without_devices import WithoutDevices, dump_without_devices
from tests.cli.node.conftest import FLAGS, FLANNEL, FLANNEL_AT, NodeHost
from tests.cli.node.installing import run_install


def test_check_names_what_is_missing_or_altered(kubeadm: NodeHost) -> None:
    """Exit status 1 and one finding each, as a table and as JSON; install repairs them."""
    run_install(kubeadm)
    (kubeadm.root / "etc/udev/rules.d/79-mooring-vfs.rules").unlink()
    kubeadm.write("/opt/cni/bin/mooring-cni", "#!/bin/sh\n")
    kubeadm.write("/var/lib/kubelet/kubeadm-flags.env", FLAGS)
    kubeadm.write(FLANNEL_AT, FLANNEL.replace("portmap", "bandwidth"))
    status, said = kubeadm.run("check", "-o", "json")
    found = [(each["step"], each["found"]) for each in json.loads(said)["findings"]]
    told = f"does not contain '--container-runtime-endpoint={LISTEN}'"
    assert (status, found) == (
        1,
        [("quiet", "missing"), ("network", "altered"), ("network", "altered"), ("kubelet", told)],
    )
    assert "4 findings" in kubeadm.run("check")[1]
    assert kubeadm.run("install", "--wheelhouse", str(kubeadm.root.parent / "first"))[0] == 0
    assert kubeadm.run("check") == (0, "no findings: the installation is intact\n")


def test_check_lists_containers_without_devices(kubeadm: NodeHost) -> None:
    """As the shim's last look has left them; a report that cannot be read is a finding as well."""
    run_install(kubeadm)
    found = WithoutDevices("ml/web", "8c2f", "trainer", "5f0e", ("0000:04:00.5",))
    report = "/run/mooring/extract/without-devices.json"
    for each, then in ((found, "delete the pod"), (replace(found, stopped=True), "the shim stops it")):
        kubeadm.write(report, dump_without_devices([each]))
        status, said = kubeadm.run("check", "-o", "json")
        told = f"runs without the devices of VF 0000:04:00.5: {then}"
        finding = {"step": "containers", "subject": "ml/web trainer", "found": told}
        assert (status, json.loads(said)["findings"]) == (1, [finding])
    kubeadm.write(report, "{")
    assert "without-devices.json" in kubeadm.run("check")[1]
    kubeadm.write(report, dump_without_devices([]))
    assert kubeadm.run("check") == (0, "no findings: the installation is intact\n")


def test_check_says_why_no_gpu_is_offered(kubeadm: NodeHost) -> None:
    """Where GPUs are to be offered, and any container can take them by a variable."""
    run_install(kubeadm)
    runtime = '[plugins."io.containerd.grpc.v1.cri".containerd]\ndefault_runtime_name = "nvidia"\n'
    kubeadm.write("/etc/containerd/config.toml", runtime)
    assert kubeadm.run("check")[0] == 0
    config = (kubeadm.root / "etc/mooring/config.yaml").read_text()
    kubeadm.write("/etc/mooring/config.yaml", f"{config}mooring-advertiser: {{gpus: true}}\n")
    status, said = kubeadm.run("check", "-o", "json")
    (found,) = json.loads(said)["findings"]
    assert (status, found["step"]) == (1, "gpus")
    assert "gives GPUs to any container that sets NVIDIA_VISIBLE_DEVICES" in found["found"]
    off = "accept-nvidia-visible-devices-envvar-when-unprivileged = false\n"
    kubeadm.write("/etc/nvidia-container-runtime/config.toml", off)
    assert kubeadm.run("check")[0] == 0


def test_check_says_that_a_device_plugin_gives_the_gpus_too(kubeadm: NodeHost) -> None:
    """By the kubelet's checkpoint, on a host where Mooring gives GPUs; a plugin that has left has no devices there."""
    run_install(kubeadm)
    checkpoint = device_plugins.CHECKPOINT
    kubeadm.write(checkpoint, '{"Data":{"RegisteredDevices":{"nvidia.com/gpu":["GPU-1"]}},"Checksum":1}')
    assert kubeadm.run("check")[0] == 0
    config = (kubeadm.root / "etc/mooring/config.yaml").read_text()
    kubeadm.write("/etc/mooring/config.yaml", f"{config}mooring-advertiser: {{gpus: true}}\n")
    status, said = kubeadm.run("check", "-o", "json")
    why = "a device plugin advertises nvidia.com/gpu on this node: two pods could get the same GPU"
    finding = {"step": "gpus", "subject": checkpoint, "found": why}
    assert (status, json.loads(said)["findings"]) == (1, [finding])
    kubeadm.write(checkpoint, "torn")
    assert "cannot be read" in kubeadm.run("check")[1]
    kubeadm.write(checkpoint, '{"Data":{"RegisteredDevices":{"nvidia.com/gpu":[],"example.com/nic":["x"]}}}')
    assert kubeadm.run("check")[0] == 0


@pytest.mark.parametrize("text", ["{", "[" * 100_000])
def test_a_journal_that_cannot_be_read_is_named(kubeadm: NodeHost, text: str) -> None:
    """Also one that is nested too deeply."""
    kubeadm.write(journal.FILE, text)
    status, said = kubeadm.run("remove")
    assert (status, "journal.json' cannot be read: " in said) == (1, True), said
