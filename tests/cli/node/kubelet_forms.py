"""The ways in which a kubelet is told its runtime's socket, and what `kubeadm upgrade node` makes of a node's files."""

import re

import yaml

from cli.node.plan.kubelet.command_line import CONFIG, FLAGS
from cli.node.plan.kubelet.endpoint import INSTANCE
from cli.node.plan.steps import LISTEN, LISTEN_CRIO
from tests.cli.node.conftest import FLAGS as KUBEADM_FLAGS
from tests.cli.node.conftest import NodeHost

RUNTIME = "unix:///var/run/containerd/containerd.sock"
CRIO = "unix:///var/run/crio/crio.sock"
# The cluster's ConfigMap kubelet-config: kubeadm leaves the socket out of it (componentconfigs/kubelet.go).
CLUSTER_CONFIG = {
    "apiVersion": "kubelet.config.k8s.io/v1beta1",
    "cgroupDriver": "systemd",
    "containerRuntimeEndpoint": "",
    "kind": "KubeletConfiguration",
}
_UNIT = "/usr/lib/systemd/system/kubelet.service"
_FLAG = re.compile(r"--container-runtime-endpoint=(\S+?)(?=[\s\"]) ?")


def _config(socket: str) -> str:
    return yaml.safe_dump({**CLUSTER_CONFIG, "containerRuntimeEndpoint": socket})


# Of each form the files, the socket that the kubelet is told by them, and the shim's.
FORMS = {
    "kubeadm before 1.34": ({FLAGS: KUBEADM_FLAGS, CONFIG: _config("")}, LISTEN),
    "kubeadm from 1.34 on": (
        {
            FLAGS: 'KUBELET_KUBEADM_ARGS="--v=2"\n',
            CONFIG: _config(RUNTIME),
            INSTANCE: f'containerRuntimeEndpoint: "{RUNTIME}"\n',
        },
        LISTEN,
    ),
    "kubeadm from 1.34 on with CRI-O": (
        {CONFIG: _config(CRIO), INSTANCE: f'containerRuntimeEndpoint: "{CRIO}"\n'},
        LISTEN_CRIO,
    ),
    "configuration": ({CONFIG: _config(RUNTIME)}, LISTEN),
    "configuration that does not name it": ({CONFIG: "kind: KubeletConfiguration"}, LISTEN),
    "distribution's flag": (
        {"/etc/default/kubelet": f"KUBELET_EXTRA_ARGS=--container-runtime-endpoint={CRIO}\n"},
        LISTEN_CRIO,
    ),
    "unit's flag": ({_UNIT: f"[Service]\nExecStart=kubelet --container-runtime-endpoint {RUNTIME}\n"}, LISTEN),
    "unit's variable": ({_UNIT: "[Service]\nExecStart=kubelet $KUBELET_EXTRA_ARGS\n"}, LISTEN),
    "folder of drop-ins": (
        {
            _UNIT: "[Service]\nExecStart=kubelet --config=/etc/k/config.json --config-dir=/etc/k/config.d\n",
            "/etc/k/config.json": f'{{"kind":"KubeletConfiguration","containerRuntimeEndpoint":"{RUNTIME}"}}',
            "/etc/k/config.d/10-site.conf": "kind: KubeletConfiguration\n",
        },
        LISTEN,
    ),
}


def kubeadm_upgrade_node(host: NodeHost) -> None:
    """Do to the kubelet's files what kubeadm does since 1.34 (WriteKubeletConfigFiles of postupgrade.go).

    Without a file of its own it moves the flag into one. Then it makes the configuration of the cluster's and of that.
    """
    if not (host.root / INSTANCE.lstrip("/")).exists():
        flags = host.text(FLAGS)
        found = _FLAG.search(flags)
        host.write(FLAGS, _FLAG.sub("", flags))
        host.write(INSTANCE, f'containerRuntimeEndpoint: "{found[1] if found else ""}"\n')
    document = {**CLUSTER_CONFIG, **yaml.safe_load(host.text(INSTANCE))}
    host.write(CONFIG, yaml.safe_dump(document))
