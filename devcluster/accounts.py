"""Give a cluster what `manifests/base` has beside the workloads: accounts, their rights, admission policies.

Scheduler and advertisers then run with their own rights alone; kubelets and people are administrators here.
"""

import json
import urllib.error
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

import yaml

from devcluster.api import Api, Object

MANIFESTS = Path(__file__).parents[1] / "manifests"
# The scheduler's namespace.
NAMESPACE = "mooring-system"
_RBAC, _ADMISSION = "/apis/rbac.authorization.k8s.io/v1", "/apis/admissionregistration.k8s.io/v1"
_PATHS = {
    "Namespace": "/api/v1/namespaces",
    "ServiceAccount": "/api/v1/namespaces/{}/serviceaccounts",
    "ConfigMap": "/api/v1/namespaces/{}/configmaps",
    "ClusterRole": f"{_RBAC}/clusterroles",
    "ClusterRoleBinding": f"{_RBAC}/clusterrolebindings",
    "Role": f"{_RBAC}/namespaces/{{}}/roles",
    "RoleBinding": f"{_RBAC}/namespaces/{{}}/rolebindings",
    "ValidatingAdmissionPolicy": f"{_ADMISSION}/validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": f"{_ADMISSION}/validatingadmissionpolicybindings",
}
# A cluster that is kept up for a person is not kept longer.
_TOKEN_S = 30 * 24 * 3600


@dataclass(frozen=True, slots=True)
class Accounts:
    """The accounts of the cluster that ``admin``, a kubeconfig, administers; theirs are written beside it."""

    admin: Path
    manifests: Path = MANIFESTS

    def install(self, components: Sequence[str] = ()) -> None:
        """Create everything, components' rights too; raise urllib's HTTPError for what is refused."""
        self.apply(components)
        # No pod of the demonstration talks to the API server: none needs a token.
        account = {"metadata": {"name": "default"}, "automountServiceAccountToken": False}
        Api.of(self.admin).request("POST", "/api/v1/namespaces/default/serviceaccounts", account)

    def apply(self, components: Sequence[str] = ()) -> None:
        """Create what the manifests have, and change what is there, as `kubectl apply` does."""
        api = Api.of(self.admin)
        for namespace, document in _documents(self.manifests, components):
            path = _PATHS[document["kind"]].format(namespace)
            try:
                api.request("POST", path, document)
            except urllib.error.HTTPError as refused:
                if refused.code != HTTPStatus.CONFLICT:
                    raise
                api.request("PATCH", f"{path}/{document['metadata']['name']}", document)

    def has_node(self, name: str) -> bool:
        """Return whether a node exists: a token can be bound to it from then on."""
        try:
            Api.of(self.admin).request("GET", f"/api/v1/nodes/{name}")
        except urllib.error.HTTPError as refused:
            if refused.code != 404:
                raise
            return False
        return True

    def kubeconfig(self, component: str, node: str | None = None) -> Path:
        """Write and return a kubeconfig of a component's account, bound to a node where one is named."""
        bound = {} if node is None else {"boundObjectRef": {"apiVersion": "v1", "kind": "Node", "name": node}}
        namespace = _namespace(self.manifests / "base" / component)
        path = f"{_PATHS['ServiceAccount'].format(namespace)}/mooring-{component}/token"
        answer = Api.of(self.admin).request("POST", path, {"spec": {"expirationSeconds": _TOKEN_S, **bound}})
        config = json.loads(self.admin.read_text())
        config["users"][0]["user"] = {"token": answer["status"]["token"]}
        own = self.admin.with_name("-".join(filter(None, (component, node, "kubeconfig"))))
        own.write_text(json.dumps(config))
        return own


def _namespace(folder: Path) -> str:
    """Return the namespace that a kustomization gives its objects; releases differ in that of the advertiser."""
    file = folder / "kustomization.yaml"
    return str((yaml.safe_load(file.read_text()) if file.exists() else {}).get("namespace", NAMESPACE))


def _documents(manifests: Path, components: Sequence[str]) -> Iterator[tuple[str, Object]]:
    """Yield what an account or a policy is made of, with its namespace; the namespaces come first."""
    files = [manifests / "base/namespace.yaml", *sorted(manifests.glob("base/*/*.yaml"))]
    files += [manifests / "components" / name / "rbac.yaml" for name in components]
    for file in files:
        for document in yaml.safe_load_all(file.read_text()):
            if document and document["kind"] in _PATHS:
                yield document["metadata"].get("namespace") or _namespace(file.parent), document
