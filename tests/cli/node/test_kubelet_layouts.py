"""Nodes as distributions lay them out: the file that their kubelet reads is edited, and no other."""

import os

import pytest

from cli.node.plan.kubelet.command_line import CONFIG, FLAGS
from cli.node.plan.kubelet.endpoint import INSTANCE
from cli.node.plan.steps import LISTEN, LISTEN_CRIO
from tests.cli.node.conftest import FLANNEL, FLANNEL_AT, NodeHost
from tests.cli.node.installing import HostOf, run_install
from tests.cli.node.kubelet_forms import CRIO, RUNTIME

_UNIT = "/etc/systemd/system/kubelet.service"
_PACKAGED = "/usr/lib/systemd/system/kubelet.service"
_HEAD = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
_KEY = f"containerRuntimeEndpoint: {RUNTIME}\n"
_FLAG = "--container-runtime-endpoint"
# What kubeadm leaves where another program writes the kubelet's own files.
LEFTOVERS = {
    FLAGS: f'KUBELET_KUBEADM_ARGS="{_FLAG}={RUNTIME} --v=2"\n',
    CONFIG: f"{_HEAD}{_KEY}",
    INSTANCE: _KEY,
}
_KUBESPRAY = {
    _UNIT: "[Service]\nEnvironmentFile=-/etc/kubernetes/kubelet.env\n"
    "ExecStart=/usr/local/bin/kubelet \\\n\t\t$KUBE_LOGTOSTDERR \\\n\t\t$KUBELET_ARGS\nRestart=always\n",
    **LEFTOVERS,
}
_KUBESPRAYS_ARGS = (
    'KUBELET_ARGS="--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf \\\n'
    '--config=/etc/kubernetes/kubelet-config.yaml \\\n{}--kubeconfig=/etc/kubernetes/kubelet.conf"\n'
)
_KUBEADM = {
    _PACKAGED: "[Unit]\nDescription=kubelet\n[Service]\nExecStart=/usr/bin/kubelet\nRestart=always\n",
    f"{_PACKAGED}.d/10-kubeadm.conf": '[Service]\nEnvironment="KUBELET_KUBECONFIG_ARGS=--kubeconfig=/etc/k.conf"\n'
    f'Environment="KUBELET_CONFIG_ARGS=--config={CONFIG}"\nEnvironmentFile=-{FLAGS}\n'
    "EnvironmentFile=-/etc/default/kubelet\nExecStart=\nExecStart=/usr/bin/kubelet $KUBELET_KUBECONFIG_ARGS "
    "$KUBELET_CONFIG_ARGS $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS\n",
    "/etc/default/kubelet": "KUBELET_EXTRA_ARGS=\n",
}

# Of each layout its files, the one that has to be edited, and the shim's socket.
LAYOUTS = {
    "kubespray, endpoint in its own configuration": (
        {
            **_KUBESPRAY,
            "/etc/kubernetes/kubelet.env": _KUBESPRAYS_ARGS.format(""),
            "/etc/kubernetes/kubelet-config.yaml": f"{_HEAD}containerRuntimeEndpoint : {RUNTIME}\n",
        },
        "/etc/kubernetes/kubelet-config.yaml",
        LISTEN,
    ),
    "kubespray, endpoint as a flag": (
        {
            **_KUBESPRAY,
            "/etc/kubernetes/kubelet.env": _KUBESPRAYS_ARGS.format(f"{_FLAG}={RUNTIME} \\\n"),
            "/etc/kubernetes/kubelet-config.yaml": _HEAD,
        },
        "/etc/kubernetes/kubelet.env",
        LISTEN,
    ),
    "kubeadm, its unit and a flag": ({**_KUBEADM, FLAGS: LEFTOVERS[FLAGS], CONFIG: _HEAD}, FLAGS, LISTEN),
    "kubeadm, its unit and the configuration": ({**_KUBEADM, CONFIG: f"{_HEAD}{_KEY}"}, CONFIG, LISTEN),
    "EKS": (
        {
            _UNIT: "[Service]\nEnvironmentFile=/etc/eks/kubelet/environment\n"
            "ExecStart=/usr/bin/kubelet $NODEADM_KUBELET_ARGS\n",
            "/etc/eks/kubelet/environment": "NODEADM_KUBELET_ARGS=--node-ip=10.0.0.5 "
            "--config=/etc/kubernetes/kubelet/config.json\nX=1",
            "/etc/kubernetes/kubelet/config.json": f'{{\n    "containerRuntimeEndpoint": "{RUNTIME}",\n    "z": 1\n}}',
        },
        "/etc/kubernetes/kubelet/config.json",
        LISTEN,
    ),
    "AKS": (
        {
            _UNIT: "[Service]\nEnvironmentFile=/etc/default/kubelet\n"
            'ExecStart=/usr/local/bin/kubelet --enable-server --node-labels="${KUBELET_NODE_LABELS}" \\\n'
            "  $KUBELET_CONFIG_FILE_FLAGS $KUBELET_CONTAINERD_FLAGS $KUBELET_FLAGS\n",
            "/etc/default/kubelet": "KUBELET_NODE_LABELS=a=b\nKUBELET_FLAGS=--config=/etc/default/kubeletconfig.json\n",
            f"{_UNIT}.d/10-containerd.conf": "[Service]\n"
            f'Environment="KUBELET_CONTAINERD_FLAGS=--x=15m {_FLAG}={RUNTIME}"\n',
            "/etc/default/kubeletconfig.json": '{"kind":"KubeletConfiguration"}',
        },
        f"{_UNIT}.d/10-containerd.conf",
        LISTEN,
    ),
    "GKE": (
        {
            _UNIT: "[Service]\nEnvironmentFile=/etc/default/kubelet\n"
            "ExecStart=/home/kubernetes/bin/kubelet $KUBELET_OPTS\n",
            "/etc/default/kubelet": 'KUBELET_OPTS="--v=2 --config /home/kubernetes/kubelet-config.yaml"\n',
            "/home/kubernetes/kubelet-config.yaml": f"{_HEAD}{_KEY}",
        },
        "/home/kubernetes/kubelet-config.yaml",
        LISTEN,
    ),
    "OpenShift": (
        {
            _UNIT: "[Service]\nEnvironmentFile=/etc/os-release\nEnvironmentFile=-/etc/kubernetes/kubelet-env\n"
            "ExecStart=/usr/local/bin/kubenswrapper \\\n  /usr/bin/kubelet --config=/etc/kubernetes/kubelet.conf \\\n"
            f"  --container-runtime-endpoint={CRIO} --node-labels=node.openshift.io/os_id=${{ID}}\n",
            "/etc/os-release": 'ID="rhcos"\n',
            "/etc/kubernetes/kubelet.conf": '{"kind":"KubeletConfiguration"}',
        },
        _UNIT,
        LISTEN_CRIO,
    ),
    "a file of --config-dir that decides": (
        {
            _UNIT: f"[Service]\nExecStart=kubelet --config={CONFIG} --config-dir /etc/kubernetes/kubelet.conf.d\n",
            CONFIG: f"{_HEAD}containerRuntimeEndpoint: {CRIO}\n",
            "/etc/kubernetes/kubelet.conf.d/10-first.conf": f"{_HEAD}containerRuntimeEndpoint: {CRIO}\n",
            "/etc/kubernetes/kubelet.conf.d/50-site.conf": f"{_HEAD}{_KEY}",
            "/etc/kubernetes/kubelet.conf.d/60-other.conf": f"{_HEAD}maxPods: 5\n",
            "/etc/kubernetes/kubelet.conf.d/70-unread.yaml": f"{_HEAD}containerRuntimeEndpoint: {CRIO}\n",
        },
        "/etc/kubernetes/kubelet.conf.d/50-site.conf",
        LISTEN,
    ),
    "a kubelet that a shell starts": (
        {
            _UNIT: f"[Service]\nEnvironment=C={CONFIG}\n"
            "ExecStart=/bin/sh -c 'mkdir -p /x && exec kubelet --config $C --v=2'\n",
            CONFIG: f"{_HEAD}{_KEY}",
        },
        CONFIG,
        LISTEN,
    ),
}
OTHERS = {
    "k3s": (
        {"/etc/systemd/system/k3s-agent.service": "[Service]\nExecStart=k3s agent\n"},
        "k3s/agent/etc/kubelet.conf.d",
    ),
    "RKE2": (
        {"/usr/local/lib/systemd/system/rke2-server.service": "[Service]\nExecStart=rke2 server\n"},
        "rke2/agent/etc/kubelet.conf.d",
    ),
    "MicroK8s": (
        {"/etc/systemd/system/snap.microk8s.daemon-kubelite.service": "[Service]\nExecStart=snap\n"},
        "/var/snap/microk8s/current/args/kubelet",
    ),
    "Canonical Kubernetes": (
        {"/etc/systemd/system/snap.k8s.kubelet.service": "[Service]\nExecStart=/usr/bin/snap run k8s.kubelet\n"},
        "/var/snap/k8s/common/args/kubelet",
    ),
    "k0s": ({"/etc/systemd/system/k0sworker.service": "[Service]\nExecStart=k0s worker\n"}, "--kubelet-extra-args"),
    "Talos": ({"/etc/os-release": "NAME=Talos\nID=talos\n"}, "Talos has no systemd"),
    "a masked unit": ({_UNIT: "", _PACKAGED: "[Service]\nExecStart=kubelet\n"}, "it is masked or starts nothing"),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_file_that_the_kubelet_reads_is_edited_and_no_other(host_of: HostOf, layout: str) -> None:
    """Removal leaves the host as it was."""
    files, edited, listen = LAYOUTS[layout]
    host = host_of({FLANNEL_AT: FLANNEL, **files})
    before = host.tree()
    run_install(host)
    changed = {path for path in files if host.text(path) != files[path]}
    assert (changed, listen in host.text(edited)) == ({edited}, True)
    assert host.run("check") == (0, "no findings: the installation is intact\n")
    assert host.run("remove")[0] == 0
    assert host.tree() == before


@pytest.mark.parametrize("other", OTHERS)
def test_a_kubelet_that_is_part_of_another_program_is_refused_by_name(host_of: HostOf, other: str) -> None:
    """With the place where an operator sets its endpoint, and before anything is changed."""
    files, recipe = OTHERS[other]
    host = host_of({FLANNEL_AT: FLANNEL, **files})
    wheels, before = str(host.wheelhouse("first")), host.tree()
    status, said = host.run("install", "--wheelhouse", wheels)
    assert (status, recipe in said, "undoing what" in said) == (1, True, False)
    assert host.tree() == before


def test_a_drop_in_of_ours_keeps_the_endpoint_where_the_distribution_writes_its_file_again(host_of: HostOf) -> None:
    """nodeadm writes config.json at each boot; removal takes our file away again."""
    own, ours = "/etc/kubernetes/kubelet/config.json", "/etc/kubernetes/kubelet/config.json.d/99-mooring.conf"
    text = f'{{"kind":"KubeletConfiguration","containerRuntimeEndpoint":"{RUNTIME}"}}\n'
    host = host_of(
        {
            FLANNEL_AT: FLANNEL,
            _UNIT: f"[Service]\nExecStart=kubelet --config={own} --config-dir={own}.d\n",
            own: text,
            f"{own}.d/40-nodeadm.conf": f"{_HEAD}maxPods: 5\n",
        }
    )
    before = host.tree()
    run_install(host)
    host.write(own, text)
    assert host.run("check") == (0, "no findings: the installation is intact\n")
    assert f"containerRuntimeEndpoint: {LISTEN}\n" in host.text(ours)
    assert host.run("remove")[0] == 0
    assert host.tree() == before


def test_the_named_configuration_counts_where_the_command_names_none(host_of: HostOf) -> None:
    """Another one than the command's is refused: the kubelet would not read it."""
    named = "/srv/kubelet.yaml"
    host = host_of({FLANNEL_AT: FLANNEL, _UNIT: "[Service]\nExecStart=/usr/local/bin/start-it\n", named: _KEY})
    run_install(host, "first", "--kubelet-config", named)
    assert host.text(named) == _KEY.replace(RUNTIME, LISTEN)
    assert host.run("check") == (0, "no findings: the installation is intact\n")
    host.write(_UNIT, f"[Service]\nExecStart=kubelet --config={CONFIG}\n")
    assert f"'kubelet.service' has --config={CONFIG}" in host.run("check")[1]
    assert host.run("remove")[0] == 0
    assert host.text(named) == _KEY


def test_a_kubelet_of_a_unit_that_nobody_knows_is_refused_by_its_units_name(host_of: HostOf) -> None:
    """The files of kubelet.service would be written in vain, whether or not kubeadm's are there."""
    host = host_of({FLANNEL_AT: FLANNEL, **LEFTOVERS})
    _running(host, "kubelet", f"{_FLAG}={RUNTIME}", cgroup="/system.slice/docker-4c1f.scope")
    wheels, before = str(host.wheelhouse("first")), host.tree()
    status, said = host.run("install", "--wheelhouse", wheels)
    assert (status, "the kubelet runs in unit 'docker-4c1f.scope'" in said) == (1, True)
    assert host.tree() == before
    _running(host, "kubelet", cgroup="/system.slice/docker-4c1f.scope/kubelet.slice/kubelet.service")
    run_install(host, "second")


def _running(host: NodeHost, *words: str, cgroup: str = "/system.slice/kubelet.service") -> None:
    host.write("/proc/77/cmdline", "".join(f"{word}\0" for word in words))
    host.write("/proc/77/cgroup", f"0::{cgroup}\n")


def test_a_kubelet_that_a_script_starts_is_known_by_its_process(host_of: HostOf) -> None:
    """What the script adds as a flag cannot be edited; a configuration file can."""
    host = host_of({FLANNEL_AT: FLANNEL, _UNIT: "[Service]\nExecStart=/usr/local/bin/start-it\n", "/srv/k.yaml": _KEY})
    _running(host, "/usr/bin/kubelet", "--config=/srv/k.yaml")
    run_install(host)
    assert host.text("/srv/k.yaml") == _KEY.replace(RUNTIME, LISTEN)
    assert host.run("check") == (0, "no findings: the installation is intact\n")
    assert host.run("remove")[0] == 0
    _running(host, "/usr/bin/kubelet", "--config=/srv/k.yaml", f"{_FLAG}={RUNTIME}")
    status, said = host.run("install", "--wheelhouse", str(host.root.parent / "first"))
    assert (status, "which '/usr/local/bin/start-it' of 'kubelet.service' sets" in said) == (1, True)


def test_check_reports_a_kubelet_that_runs_with_other_arguments_than_its_unit_has(host_of: HostOf) -> None:
    """A kubelet in a container, as kind's, is not the host's."""
    host = host_of({FLANNEL_AT: FLANNEL, **_KUBEADM, CONFIG: f"{_HEAD}{_KEY}", "/srv/old.yaml": _KEY})
    _running(host, "/usr/bin/kubelet", "--config=/srv/old.yaml", cgroup="/system.slice/docker-1.scope/kubelet.service")
    run_install(host)
    assert host.run("check")[0] == 0
    _running(host, "/usr/bin/kubelet", "--config=/srv/old.yaml")
    status, said = host.run("check")
    assert status == 1
    assert "the kubelet runs with --config=/srv/old.yaml, but will start with --config=/var/lib/kubelet/c" in said


def test_a_configuration_behind_a_link_keeps_its_mode_and_attributes(host_of: HostOf) -> None:
    """The link stays, and the file behind it is edited; a label of SELinux is such an attribute."""
    host = host_of({FLANNEL_AT: FLANNEL, **_KUBEADM, "/srv/kubelet.yaml": f"{_HEAD}{_KEY}"})
    link, there = host.root / CONFIG.lstrip("/"), host.root / "srv/kubelet.yaml"
    link.parent.mkdir(parents=True)
    link.symlink_to("/srv/kubelet.yaml")
    there.chmod(0o640)
    os.setxattr(there, "user.mooring", b"kept")
    run_install(host)
    assert LISTEN in there.read_text()
    assert (link.is_symlink(), there.stat().st_mode & 0o777) == (True, 0o640)
    assert os.getxattr(there, "user.mooring") == b"kept"
