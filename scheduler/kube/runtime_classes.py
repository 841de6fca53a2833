"""The RuntimeClasses of the cluster (``node.k8s.io/v1``): the handler that a node's container runtime has for each.

A class's handler never changes. Source: ValidateRuntimeClassUpdate in pkg/apis/node/validation/validation.go of
Kubernetes.
"""

from scheduler.kube.objects import Metadata, Struct

# Where RuntimeClasses are listed.
PATHS = ("/apis/node.k8s.io/v1/runtimeclasses",)


class RuntimeClass(Struct):
    metadata: Metadata
    handler: str
