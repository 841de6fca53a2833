"""The kinds that the server knows by name, and those that it learns.

The table holds what discovery and the verbs need of each kind. Every other kind is learnt: from a
CustomResourceDefinition, or from the first object posted, and is stored as it comes.
"""

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Resource:
    """A kind as discovery shows it and as the verbs treat it.

    `generation`: a change outside metadata and status counts up metadata.generation. `unconditional`: a PUT may leave
    out the resource version. `upserts`: a PUT may create. `learnt`: not of the table; lists keep kind and apiVersion
    in each item, as a real server does for custom resources.
    """

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()
    generation: bool = False
    unconditional: bool = True
    upserts: bool = False
    learnt: bool = False

    @property
    def api_version(self) -> str:
        """Return `group/version`, or the version alone in the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def singular(self) -> str:
        """Return the singular name: the kind in lower case."""
        return self.kind.lower()

    @property
    def has_status(self) -> bool:
        """Return whether status is written through its own subresource only."""
        return "status" in self.subresources

    @property
    def storage(self) -> tuple[str, str]:
        """Name the collection: both event groups share one."""
        return ("", "events") if self.plural == "events" else (self.group, self.plural)


_STATUS = ("status",)
_SCALED = ("scale", "status")
_ALL = ("all",)
_RBAC = "rbac.authorization.k8s.io"
_ADMISSION = "admissionregistration.k8s.io"
_DRA = "resource.k8s.io"

_CORE = (
    Resource("", "v1", "namespaces", "Namespace", False, ("ns",), subresources=("status",)),
    Resource("", "v1", "nodes", "Node", False, ("no",), subresources=_STATUS),
    Resource("", "v1", "pods", "Pod", True, ("po",), _ALL, ("binding", "eviction", "log", "status"), generation=True),
    Resource("", "v1", "bindings", "Binding"),
    Resource("", "v1", "events", "Event", True, ("ev",), upserts=True),
    Resource("", "v1", "configmaps", "ConfigMap", True, ("cm",)),
    Resource("", "v1", "secrets", "Secret"),
    Resource("", "v1", "serviceaccounts", "ServiceAccount", True, ("sa",), (), ("token",)),
    Resource("", "v1", "services", "Service", True, ("svc",), _ALL, _STATUS),
    Resource("", "v1", "endpoints", "Endpoints", True, ("ep",)),
    Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", True, ("pvc",), (), _STATUS),
    Resource("", "v1", "persistentvolumes", "PersistentVolume", False, ("pv",), (), _STATUS),
    Resource("", "v1", "replicationcontrollers", "ReplicationController", True, ("rc",), _ALL, _STATUS, True),
    Resource("", "v1", "resourcequotas", "ResourceQuota", True, ("quota",), (), _STATUS),
    Resource("", "v1", "limitranges", "LimitRange", True, ("limits",)),
)

_GROUPS = (
    Resource("events.k8s.io", "v1", "events", "Event", True, ("ev",), upserts=True),
    Resource("coordination.k8s.io", "v1", "leases", "Lease", unconditional=False, upserts=True),
    Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", True, ("pdb",), (), _STATUS, True),
    Resource("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", False, ("pc",)),
    # Kubernetes 1.37's; a server of 1.36 has v1alpha2 in its place.
    Resource("scheduling.k8s.io", "v1beta1", "podgroups", "PodGroup", True, (), (), _STATUS, True),
    Resource("apps", "v1", "deployments", "Deployment", True, ("deploy",), _ALL, _SCALED, True),
    Resource("apps", "v1", "daemonsets", "DaemonSet", True, ("ds",), _ALL, _STATUS, True),
    Resource("apps", "v1", "replicasets", "ReplicaSet", True, ("rs",), _ALL, _SCALED, True),
    Resource("apps", "v1", "statefulsets", "StatefulSet", True, ("sts",), _ALL, _SCALED, True),
    Resource("batch", "v1", "jobs", "Job", True, (), _ALL, _STATUS, True),
    Resource("batch", "v1", "cronjobs", "CronJob", True, ("cj",), _ALL, _STATUS, True),
    Resource("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice"),
    Resource("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy", True, ("netpol",)),
    Resource("storage.k8s.io", "v1", "storageclasses", "StorageClass", False, ("sc",)),
    Resource("storage.k8s.io", "v1", "csinodes", "CSINode", False),
    Resource("storage.k8s.io", "v1", "csidrivers", "CSIDriver", False),
    Resource("storage.k8s.io", "v1", "csistoragecapacities", "CSIStorageCapacity"),
    Resource("storage.k8s.io", "v1", "volumeattachments", "VolumeAttachment", False, (), (), _STATUS),
    # Which of them have a generation: strategy.go of each in kubernetes' pkg/registry/resource.
    Resource(_DRA, "v1", "deviceclasses", "DeviceClass", False, (), (), (), True),
    Resource(_DRA, "v1", "resourceclaims", "ResourceClaim", True, (), (), _STATUS),
    Resource(_DRA, "v1", "resourceclaimtemplates", "ResourceClaimTemplate"),
    Resource(_DRA, "v1", "resourceslices", "ResourceSlice", False, (), (), (), True),
    Resource("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", False),
    Resource(_RBAC, "v1", "clusterroles", "ClusterRole", False),
    Resource(_RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", False),
    Resource(_RBAC, "v1", "roles", "Role"),
    Resource(_RBAC, "v1", "rolebindings", "RoleBinding"),
    Resource(_ADMISSION, "v1", "validatingadmissionpolicies", "ValidatingAdmissionPolicy", False, (), (), _STATUS),
    Resource(_ADMISSION, "v1", "validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding", False),
    Resource(_ADMISSION, "v1", "validatingwebhookconfigurations", "ValidatingWebhookConfiguration", False),
    Resource(_ADMISSION, "v1", "mutatingwebhookconfigurations", "MutatingWebhookConfiguration", False),
    Resource("flowcontrol.apiserver.k8s.io", "v1", "flowschemas", "FlowSchema", False, (), (), _STATUS),
    Resource(
        "apiextensions.k8s.io",
        "v1",
        "customresourcedefinitions",
        "CustomResourceDefinition",
        False,
        ("crd", "crds"),
        (),
        _STATUS,
    ),
)


class Catalog:
    """The kinds served now, by group, version and plural."""

    def __init__(self) -> None:
        self._kinds = {(one.group, one.version, one.plural): one for one in (*_CORE, *_GROUPS)}

    def __iter__(self) -> Iterator[Resource]:
        return iter(self._kinds.values())

    def find(self, group: str, version: str, plural: str) -> Resource | None:
        """Return the kind, None if it is not known."""
        return self._kinds.get((group, version, plural))

    def learn(self, resource: Resource) -> None:
        """Serve a new kind from now on."""
        self._kinds[resource.group, resource.version, resource.plural] = resource

    def forget(self, group: str, version: str, plural: str) -> None:
        """Serve a kind no longer: an API that is switched off, or a definition that is deleted."""
        self._kinds.pop((group, version, plural), None)

    def groups(self) -> dict[str, list[str]]:
        """Return each group's versions in the order of the table."""
        found: dict[str, list[str]] = {}
        for group, version, _ in self._kinds:
            versions = found.setdefault(group, [])
            if version not in versions:
                versions.append(version)
        return found
