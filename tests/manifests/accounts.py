"""The manifests' service accounts and roles on an API server, and what a role is worth without one of its rights."""

import contextlib
import itertools
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from devcluster.apiserver.access.rbac import Attributes, allows
from mooring.kube.client import Client
from mooring.kube.failures import Conflict
from tests.manifests.rendering import Document, raw

# Where the scheduler is, and where the pods with rights on their node are.
NAMESPACE, NODE_NAMESPACE = "mooring-system", "mooring-node"
_RBAC = "/apis/rbac.authorization.k8s.io/v1"
_FOLDERS = {
    "ServiceAccount": "/api/v1/namespaces/{}/serviceaccounts",
    "ClusterRole": f"{_RBAC}/clusterroles",
    "ClusterRoleBinding": f"{_RBAC}/clusterrolebindings",
    "Role": f"{_RBAC}/namespaces/{{}}/roles",
    "RoleBinding": f"{_RBAC}/namespaces/{{}}/rolebindings",
}


@dataclass(frozen=True, slots=True)
class Program:
    """A program of the manifests: `scheduler` or `advertiser`; ``more`` are files with roles that a component adds.

    ``folder`` is the one that has its manifests, empty for that of the base.
    """

    component: str
    more: tuple[str, ...] = ()
    folder: str = ""

    @property
    def namespace(self) -> str:
        return NAMESPACE if self.component == "scheduler" else NODE_NAMESPACE

    @property
    def user(self) -> str:
        return f"system:serviceaccount:{self.namespace}:mooring-{self.component}"

    @property
    def documents(self) -> list[Document]:
        folder = self.folder or f"base/{self.component}"
        base = (f"{folder}/serviceaccount.yaml", f"{folder}/rbac.yaml")
        return [document for file in (*base, *self.more) for document in raw(file)]

    def arguments(self, **values: str) -> list[str]:
        """Return the flags of the one container, `$(NAME)` replaced."""
        file = "deployment" if self.component == "scheduler" else "daemonset"
        (document,) = raw(f"{self.folder or f'base/{self.component}'}/{file}.yaml")
        (container,) = document["spec"]["template"]["spec"]["containers"]
        flags: list[str] = container["args"]
        for name, value in values.items():
            flags = [flag.replace(f"$({name})", value) for flag in flags]
        return flags

    async def install(self, admin: Client) -> None:
        """Create account, roles and bindings."""
        await put(admin, "/api/v1/namespaces", {"metadata": {"name": self.namespace}})
        for document in self.documents:
            await put(admin, _FOLDERS[document["kind"]].format(self.namespace), document)

    async def log_in(self, admin: Client, theirs: Path, ours: Path, **bound: Any) -> None:
        """Write a kubeconfig with a token of the account, bound to an object where one is named."""
        spec = {"expirationSeconds": 3600, **({"boundObjectRef": bound} if bound else {})}
        path = f"{_FOLDERS['ServiceAccount'].format(self.namespace)}/mooring-{self.component}/token"
        answer = msgspec.json.decode(await admin.request("POST", path, msgspec.json.encode({"spec": spec})))
        config = json.loads(theirs.read_text())
        config["users"][0]["user"] = {"token": answer["status"]["token"]}
        ours.write_text(json.dumps(config))

    def rights(self) -> list["Right"]:
        """Return all that its roles allow, one by one."""
        return [
            right
            for document in self.documents
            if document["kind"] in ("Role", "ClusterRole")
            for right in _taken_apart(document, self.namespace)
        ]


@dataclass(frozen=True, slots=True)
class Right:
    """One verb on one resource, of one name or of all; in one namespace, or everywhere where it is empty."""

    group: str
    resource: str
    verb: str
    name: str
    namespace: str

    def covers(self, asked: Attributes) -> bool:
        names = [self.name] if self.name else []
        rule = {"apiGroups": [self.group], "resources": [self.resource], "verbs": [self.verb], "resourceNames": names}
        return self.namespace in ("", asked.namespace) and allows([rule], asked)


def _taken_apart(role: Document, own: str) -> Iterator[Right]:
    namespace = own if role["kind"] == "Role" else ""
    for rule in role["rules"]:
        names = rule.get("resourceNames", [""])
        for group, resource, verb, name in itertools.product(
            rule["apiGroups"], rule["resources"], rule["verbs"], names
        ):
            yield Right(group, resource, verb, name, namespace)


def unneeded(rights: list[Right], asked: Iterable[Attributes]) -> list[Right]:
    """Return the rights that were not needed: without any single one of them every request would have been allowed."""
    wanted = list(asked)

    def refused_without(one: Right) -> bool:
        others = [right for right in rights if right is not one]
        return any(not any(right.covers(each) for right in others) for each in wanted)

    return [right for right in rights if not refused_without(right)]


async def put(admin: Client, folder: str, document: Document) -> None:
    """Create an object, unless it is there."""
    with contextlib.suppress(Conflict):
        await admin.request("POST", folder, msgspec.json.encode(document))
