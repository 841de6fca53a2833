"""The network configuration and the environment that the lab's calls of the CNI plugin have in common."""

from typing import Any


def host_local(subnet: str, folder: str = "/run/ipam") -> dict[str, Any]:
    """Return the configuration of an IPAM that gives addresses of one subnet."""
    return {"type": "host-local", "ranges": [[{"subnet": subnet}]], "dataDir": folder}


CONF: dict[str, Any] = {
    "cniVersion": "1.0.0",
    "name": "net",
    "type": "mooring-cni",
    "node": "n1",
    "prevResult": {"cniVersion": "1.0.0", "interfaces": [], "ips": []},
}
WITH_ADDRESSES = CONF | {"ipam": host_local("10.9.0.0/24")}
ENVIRONMENT = {
    "CNI_CONTAINERID": "c1",
    "CNI_NETNS": "/run/netns/pod",
    "CNI_IFNAME": "eth0",
    "CNI_PATH": "/usr/lib/cni",
    "CNI_ARGS": "IgnoreUnknown=1;K8S_POD_NAMESPACE=ns;K8S_POD_NAME=p;K8S_POD_UID=u1",
}
