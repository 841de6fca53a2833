"""The files of a fresh host before Mooring: container runtime, kubelet and pod network, as kubeadm leaves them."""

import json
import sys
from collections.abc import Mapping

from devcluster.runtime.containerd import write_configuration

API_SERVER = ("10.96.0.1", 443)
REGISTRY = ("10.96.0.2", 5000)
CONTAINERD = "/run/containerd/containerd.sock"
PLUGINS = ("loopback", "ptp", "host-local", "static")

_CONTAINERD_UNIT = """\
[Unit]
Description=containerd container runtime

[Service]
Type=notify
Environment=PATH={path}
ExecStart=containerd --config /etc/containerd/config.toml
KillMode=process
Restart=always
RestartSec=5
LimitNOFILE=65536

[Install]
WantedBy=multi-user.target
"""
_KUBELET_UNIT = """\
[Unit]
Description=The kubelet's stand-in
After=containerd.service

[Service]
EnvironmentFile=-/var/lib/kubelet/kubeadm-flags.env
ExecStart={python} -m devcluster.kubelet --kubeconfig /etc/kubernetes/kubelet.conf --node-name {node} \\
  --address {address} --pull true --pod-logs /var/log/pods $KUBELET_KUBEADM_ARGS
Restart=always
RestartSec=1

[Install]
WantedBy=multi-user.target
"""


def address(number: int) -> str:
    """Return the address of a host, counted from 1."""
    return f"192.168.56.{number}"


def files(node: str, number: int, snapshotter: str, programs: str) -> Mapping[str, str]:
    """Return one host's files, text by path; ``programs`` are the folders with containerd and its programs."""
    flags = f"--container-runtime-endpoint=unix://{CONTAINERD}"
    unit = _KUBELET_UNIT.format(python=sys.executable, node=node, address=address(number))
    return {
        "/etc/hostname": f"{node}\n",
        "/etc/resolv.conf": "# Nothing is resolved here.\n",
        "/etc/containerd/config.toml": write_configuration(
            snapshotter,
            root="/var/lib/containerd",
            state="/run/containerd",
            socket=CONTAINERD,
            cni_bin="/opt/cni/bin",
            cni_conf="/etc/cni/net.d",
            registries="/etc/containerd/certs.d",
            cdi=("/etc/cdi", "/var/run/cdi"),
        ),
        "/etc/containerd/certs.d/_default/hosts.toml": _registry(),
        "/etc/cni/net.d/10-pods.conflist": json.dumps(_pod_network(number), indent=1),
        "/etc/systemd/system/containerd.service": _CONTAINERD_UNIT.format(path=programs),
        "/etc/systemd/system/kubelet.service": unit,
        "/var/lib/kubelet/kubeadm-flags.env": f'KUBELET_KUBEADM_ARGS="{flags}"\n',
    }


def links() -> Mapping[str, str]:
    """Return a host's links, target by path: the CNI plugins, and what a boot starts."""
    wants = "/etc/systemd/system/multi-user.target.wants"
    units = {f"{wants}/{name}": f"../{name}" for name in ("containerd.service", "kubelet.service")}
    return units | {f"/opt/cni/bin/{name}": f"/usr/lib/cni/{name}" for name in PLUGINS}


def kubeconfig(admins: str) -> str:
    """Return a host's kubeconfig from the administrator's: the same rights, the address that hosts reach."""
    config = json.loads(admins)
    host, port = API_SERVER
    config["clusters"][0]["cluster"] = {
        "server": f"https://{host}:{port}",
        "certificate-authority": "/etc/kubernetes/pki/ca.crt",
    }
    return json.dumps(config, indent=1)


def _registry() -> str:
    """Return where images come from, for any registry name: nothing is fetched from outside."""
    host, port = REGISTRY
    return f'[host."http://{host}:{port}"]\n  capabilities = ["pull", "resolve"]\n'


def _pod_network(number: int) -> dict[str, object]:
    ranges = [[{"subnet": f"10.244.{number}.0/24"}]]
    ipam = {"type": "host-local", "ranges": ranges, "routes": [{"dst": "0.0.0.0/0"}]}
    return {"cniVersion": "1.0.0", "name": "pods", "plugins": [{"type": "ptp", "ipam": ipam}]}
