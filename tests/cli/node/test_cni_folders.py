"""The CNI folders come from the runtime's own configuration, on nodes where they are not containerd's defaults."""

import json
from collections.abc import Callable, Mapping

import pytest

from tests.cli.node.conftest import FLANNEL, FLANNEL_AT, KUBEADM, NodeHost
from tests.cli.node.installing import run_install

HostOf = Callable[[Mapping[str, str]], NodeHost]
CRIO = {"/var/lib/kubelet/config.yaml": "containerRuntimeEndpoint: unix:///var/run/crio/crio.sock\n"}
KUBELET = {"/var/lib/kubelet/kubeadm-flags.env": KUBEADM["/var/lib/kubelet/kubeadm-flags.env"]}
V2 = '[plugins."io.containerd.grpc.v1.cri".cni]\n'
V3 = '[plugins."io.containerd.cri.v1.runtime".cni]\n'
DEFAULT = ("/etc/cni/net.d", "/opt/cni/bin")
# Each layout: its files, and the folders of configurations and plugins.
LAYOUTS: dict[str, tuple[dict[str, str], tuple[str, str]]] = {
    "no file at all": (KUBELET, DEFAULT),
    "OpenShift, whose file has no ending": (
        {
            **CRIO,
            "/etc/crio/crio.conf": '[crio.network]\nnetwork_dir = "/etc/cni/net.d"\n',
            "/etc/crio/crio.conf.d/00-default": '[crio.network]\nnetwork_dir = "/etc/kubernetes/cni/net.d/"\n'
            'plugin_dirs = [\n  "/var/lib/cni/bin",\n  "/usr/libexec/cni",\n]\n',
        },
        ("/etc/kubernetes/cni/net.d", "/var/lib/cni/bin"),
    ),
    "MicroShift's CRI-O": (
        {
            **CRIO,
            "/etc/crio/crio.conf.d/12-microshift-multus.conf": '[crio.network]\nplugin_dirs = ["/run/cni/bin"]\n',
        },
        ("/etc/cni/net.d", "/run/cni/bin"),
    ),
    "CRI-O with the old name of one folder": (
        {**CRIO, "/etc/crio/crio.conf": '[crio.network]\nplugin_dir = "/srv/cni"\n'},
        ("/etc/cni/net.d", "/srv/cni"),
    ),
    "containerd, version 2": (
        {
            **KUBELET,
            "/etc/containerd/config.toml": f'version = 2\n{V2}conf_dir = "/srv/net.d"\nbin_dir = "/srv/bin"\n',
        },
        ("/srv/net.d", "/srv/bin"),
    ),
    "containerd, version 3, in an imported file": (
        {
            **KUBELET,
            "/etc/containerd/config.toml": f'imports = ["conf.d/*.toml"]\n{V3}bin_dirs = ["/opt/cni/bin"]\n',
            "/etc/containerd/conf.d/cni.toml": f'version = 3\n{V3}conf_dir = "/srv/net.d"\nbin_dirs = ["/srv/bin"]\n',
        },
        ("/srv/net.d", "/srv/bin"),
    ),
    "k3s' containerd, with a kubelet of its own unit": (
        {
            "/var/lib/kubelet/config.yaml": "containerRuntimeEndpoint: unix:///run/k3s/containerd/containerd.sock\n",
            "/var/lib/rancher/k3s/agent/etc/containerd/config.toml": f"version = 3\n{V3}"
            'bin_dirs = ["/var/lib/rancher/k3s/data/cni"]\nconf_dir = "/var/lib/rancher/k3s/agent/etc/cni/net.d"\n',
            "/etc/containerd/config.toml": f'version = 3\n{V3}conf_dir = "/of/another/containerd"\n',
        },
        ("/var/lib/rancher/k3s/agent/etc/cni/net.d", "/var/lib/rancher/k3s/data/cni"),
    ),
    "RKE2's containerd": (
        {
            "/var/lib/kubelet/config.yaml": "containerRuntimeEndpoint: unix:///run/k3s/containerd/containerd.sock\n",
            "/var/lib/rancher/rke2/agent/etc/containerd/config.toml": f"version = 2\n{V2}"
            'bin_dir = "/opt/cni/bin"\nconf_dir = "/etc/cni/net.d"\n',
        },
        DEFAULT,
    ),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_chain_and_the_executable_go_where_the_runtime_looks(layout: str, host_of: HostOf) -> None:
    """Installed, checked and removed; the CNI server reads its own networks from the same folder."""
    files, (conf, plugins) = LAYOUTS[layout]
    host = host_of({**files, f"{conf}/10-flannel.conflist": FLANNEL})
    run_install(host)
    chain = json.loads(host.text(f"{conf}/00-n-mooring.conflist"))
    assert [plugin["type"] for plugin in chain["plugins"]] == ["flannel", "portmap", "mooring-cni"]
    assert "SOCKET" in host.text(f"{plugins}/mooring-cni")
    assert (f"chains: {conf}\n" in host.text("/etc/mooring/config.yaml")) is (conf != DEFAULT[0])
    assert host.run("check") == (0, "no findings: the installation is intact\n")
    assert host.run("remove")[0] == 0
    assert sorted(path.name for path in (host.root / conf.lstrip("/")).iterdir()) == ["10-flannel.conflist"]
    assert not (host.root / plugins.lstrip("/") / "mooring-cni").exists()


def test_crios_default_network_is_what_is_chained(host_of: HostOf) -> None:
    """CRI-O uses the first file with that network's name, so ours is a copy of that, and `check` follows the name."""
    named = {"/etc/crio/crio.conf.d/11-microshift-ovn.conf": '[crio.network]\ncni_default_network = "ovn-kubernetes"\n'}
    main = json.dumps({"cniVersion": "1.0.0", "name": "ovn-kubernetes", "type": "ovn-k8s-cni-overlay"})
    host = host_of({**CRIO, **named, FLANNEL_AT: FLANNEL, "/etc/cni/net.d/20-ovn-kubernetes.conf": main})
    run_install(host)
    chain = json.loads(host.text("/etc/cni/net.d/00-n-mooring.conflist"))
    assert (chain["name"], [plugin["type"] for plugin in chain["plugins"]]) == (
        "ovn-kubernetes",
        ["ovn-k8s-cni-overlay", "mooring-cni"],
    )
    assert host.run("check")[0] == 0


def test_a_configuration_that_cannot_be_read_is_named(host_of: HostOf) -> None:
    """The folders are not guessed: nothing is installed, and what is installed can still be removed."""
    host = host_of(KUBEADM)
    run_install(host)
    host.write("/etc/containerd/config.toml", "version = \n")
    status, said = host.run("check")
    assert status == 1
    assert "the runtime's CNI folders are unknown: configuration '" in said
    assert host.run("remove")[0] == 0
    before = host.tree()
    status, said = host.run("install", "--wheelhouse", str(host.root.parent / "first"))
    assert (status, "the runtime's CNI folders are unknown" in said) == (1, True)
    assert host.tree() == before
