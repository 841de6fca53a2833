"""The one-shot Jobs that capture nodes: one a node, so that none depends on a scheduler or on another node. Pure.

A pod runs as root, because the kubelet's checkpoint is for root only, and without any capability. It is in the host's
network, because only there the kernel lists the settings of VFs and the host's links. All its mounts are read-only.
"""

from collections.abc import Sequence
from typing import Any

NAME = "mooring-assess"
# Seconds after which a node that does not answer is given up, and after which what ran is deleted.
_DEADLINE_S, _KEPT_S = 300, 3600
# The host's folders, by where they are below /host.
_MOUNTS = {"sys": "/sys", "proc/driver": "/proc/driver", "kubelet/device-plugins": "/var/lib/kubelet/device-plugins"}


def arguments(node: str) -> list[str]:
    """Return the arguments of `mooring-advertiser`."""
    return [
        *("capture", "--uses", "--archive=-", f"--node-name={node}"),
        *("--sysfs=/host/sys", "--proc=/host/proc", "--kubelet=/host/kubelet"),
    ]


def manifests(nodes: Sequence[str], namespace: str, image: str) -> dict[str, Any]:
    """Return a list of the Jobs."""
    return {"apiVersion": "v1", "kind": "List", "items": [_job(each, namespace, image) for each in enumerate(nodes)]}


def _job(numbered: tuple[int, str], namespace: str, image: str) -> dict[str, Any]:
    number, node = numbered
    labels = {"app.kubernetes.io/name": NAME}
    volumes = {name.replace("/", "-"): (name, path) for name, path in _MOUNTS.items()}
    container = {
        "name": "capture",
        "image": image,
        "args": arguments(node),
        "resources": {"requests": {"cpu": "10m", "memory": "64Mi"}, "limits": {"memory": "512Mi"}},
        "securityContext": {
            "runAsUser": 0,
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "volumeMounts": [
            {"name": volume, "mountPath": f"/host/{name}", "readOnly": True} for volume, (name, _) in volumes.items()
        ],
    }
    spec = {
        "nodeName": node,
        "hostNetwork": True,
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "tolerations": [{"operator": "Exists"}],
        "containers": [container],
        "volumes": [{"name": volume, "hostPath": {"path": path}} for volume, (_, path) in volumes.items()],
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": f"{NAME}-{number}", "namespace": namespace, "labels": labels},
        "spec": {
            "backoffLimit": 1,
            "activeDeadlineSeconds": _DEADLINE_S,
            "ttlSecondsAfterFinished": _KEPT_S,
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }
