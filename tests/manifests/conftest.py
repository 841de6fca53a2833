"""The guard in front of two APIs: one that is rehearsed with a CEL library, and a real one."""

import itertools
import os
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

import aiohttp
import msgspec
import pytest
import yaml

from bench.served import apiservers
from mooring.kube.access import Access, load_access
from tests.manifests.admission import Judge, Object, Rehearsal, User
from tests.manifests.rendering import ROOT
from tests.support.polling import eventually

_JSON, _MERGE = "application/json", "application/merge-patch+json"
_ADMISSION = "/apis/admissionregistration.k8s.io/v1"
_PATHS = {
    "ConfigMap": "/api/v1/namespaces/mooring-system/configmaps",
    "ValidatingAdmissionPolicy": f"{_ADMISSION}/validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": f"{_ADMISSION}/validatingadmissionpolicybindings",
}
_ADMIN = User("admin")
_fresh = itertools.count(1)


class Guarded(Protocol):
    """An API behind the guard; each write returns why it was refused, nothing where it was not."""

    async def create(self, user: User, plural: str, obj: Object) -> str: ...
    async def patch(self, user: User, plural: str, name: str, change: Object, subresource: str = "") -> str: ...
    async def bind(
        self, user: User, pod: str, annotations: Mapping[str, str], resource: str = "pods/binding"
    ) -> str: ...
    async def take_pods_of(self, schedulers: str) -> None: ...


class RealGuarded:
    """A real API server with a namespace of the test's own; an administrator acts for each user."""

    def __init__(self, access: Access, session: aiohttp.ClientSession) -> None:
        self._access = access
        self._session = session
        self._namespace = f"guard{next(_fresh)}"
        self._nodes: list[str] = []

    async def open(self) -> None:
        """Install the guard, where no earlier test did, and wait until it guards."""
        for name in ("mooring-system", self._namespace):
            await self.send(_ADMIN, "POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        for document in guard():
            await self.send(_ADMIN, "POST", _PATHS[document["kind"]], document)
        for policy in ("assignment", "inventory", "interfaces", "bindings", "groups"):
            await self._await_refusal(*_breach(policy))
        await self.take_pods_of("mooring")

    async def close(self) -> None:
        """Remove what the test has made."""
        await self.send(_ADMIN, "DELETE", f"{self._base('pods')}?gracePeriodSeconds=0")
        for name in self._nodes:
            await self.send(_ADMIN, "DELETE", f"/api/v1/nodes/{name}")

    async def create(self, user: User, plural: str, obj: Object) -> str:
        if plural == "nodes":
            self._nodes.append(obj["metadata"]["name"])
        spec = {"automountServiceAccountToken": False, **obj["spec"]} if plural == "pods" else obj["spec"]
        return await self.send(user, "POST", self._base(plural), {**obj, "spec": spec})

    async def patch(self, user: User, plural: str, name: str, change: Object, subresource: str = "") -> str:
        path = "/".join(filter(None, (self._base(plural), name, subresource)))
        return await self.send(user, "PATCH", path, change, _MERGE)

    async def bind(self, user: User, pod: str, annotations: Mapping[str, str], resource: str = "pods/binding") -> str:
        binding = {"metadata": {"name": pod, "annotations": dict(annotations)}, "target": {"kind": "Node", "name": "n"}}
        path = f"{self._base('pods')}/{pod}/binding" if "/" in resource else self._base(resource)
        return await self.send(user, "POST", path, binding)

    async def take_pods_of(self, schedulers: str) -> None:
        path = f"{_PATHS['ConfigMap']}/mooring-guard"
        assert await self.send(_ADMIN, "PATCH", path, {"data": {"schedulerNames": schedulers}}, _MERGE) == ""
        names = [name for name in ("default-scheduler", "mooring") if name not in schedulers.split()]
        for name in names or ["nobody"]:
            await self._await_refusal("pods", _probe(name), f"names one of: {schedulers}")

    async def send(self, user: User, method: str, path: str, body: Any = None, kind: str = _JSON) -> str:
        """Send a request for a user, who may do anything but what the guard forbids; return a failure's message."""
        headers = {"Content-Type": kind, **self._access.headers(), **_impersonation(user)}
        data = None if body is None else msgspec.json.encode(body)
        url = self._access.server + path
        async with self._session.request(method, url, data=data, headers=headers, ssl=self._access.tls or True) as got:
            answer = await got.json()
        return "" if got.status < 300 else str(answer["message"])

    async def _await_refusal(self, plural: str, obj: Object, why: str) -> None:
        """Wait until a write that breaks a rule is refused for that rule: policies take a moment to be seen."""

        async def refused() -> bool:
            return why in await self.send(User("nobody"), "POST", f"{self._base(plural)}?dryRun=All", obj)

        await eventually(refused)

    def _base(self, plural: str) -> str:
        return "/api/v1/nodes" if plural == "nodes" else f"/api/v1/namespaces/{self._namespace}/{plural}"


def _impersonation(user: User) -> dict[str, str]:
    headers = {"Impersonate-User": user.name, "Impersonate-Group": "system:masters"} if user != _ADMIN else {}
    if user.node:
        headers["Impersonate-Extra-authentication.kubernetes.io%2fnode-name"] = user.node
    return headers


def _probe(scheduler: str) -> Object:
    spec = {"schedulerName": scheduler, "containers": [{"name": "c", "image": "i"}]}
    return {"metadata": {"name": "probe", "annotations": {"mooring.dev/interfaces": "[{}]"}}, "spec": spec}


def _breach(policy: str) -> tuple[str, Object, str]:
    """Return a write that a policy refuses, and a part of its message."""
    if policy == "inventory":
        return "nodes", {"metadata": {"name": "probe", "annotations": {"mooring.dev/inventory": ""}}}, policy
    if policy == "bindings":
        metadata = {"name": "probe", "annotations": {"mooring.dev/interfaces": ""}}
        return "bindings", {"metadata": metadata, "target": {"kind": "Node", "name": "n"}}, "a Binding sets none"
    probe = _probe("nobody")
    if policy == "assignment":
        # Of two policies that refuse, either may answer.
        probe["metadata"]["annotations"] = {"mooring.dev/assignment": ""}
    if policy == "groups":
        probe["metadata"]["annotations"] = {"mooring.dev/group": ""}
        return "pods", probe, "mooring.dev/group"
    return "pods", probe, policy


@asynccontextmanager
async def behind_the_guard(kubeconfig: Path) -> AsyncIterator[RealGuarded]:
    """Install the guard on a real server, and clean up behind a test."""
    async with aiohttp.ClientSession() as session:
        real = RealGuarded(load_access(str(kubeconfig)), session)
        await real.open()
        yield real
        await real.close()


@pytest.fixture(scope="session")
def guarded_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Start a real API server apart: others' tests write what the guard forbids."""
    if "KUBEBUILDER_ASSETS" not in os.environ:
        pytest.skip("tier 'apiserver': KUBEBUILDER_ASSETS is not set, and the cluster of KUBECONFIG is not ours")
    with apiservers.real(Path(os.environ["KUBEBUILDER_ASSETS"]), tmp_path_factory.mktemp("guarded")) as kubeconfig:
        yield kubeconfig


def guard() -> list[Object]:
    """Return the guard's objects."""
    files = sorted((ROOT / "base/guard").glob("*.yaml"))
    documents = [one for file in files for one in yaml.safe_load_all(file.read_text()) if one]
    return [one for one in documents if one["kind"] in _PATHS]


@pytest.fixture(params=["cel", pytest.param("real", marks=pytest.mark.apiserver)])
async def guarded(request: pytest.FixtureRequest) -> AsyncIterator[Guarded]:
    """Stand behind the guard, by a CEL library, and once more on a real API server."""
    if request.param == "cel":
        documents = guard()
        by_kind = {kind: [one for one in documents if one["kind"] == kind] for kind in _PATHS}
        bindings = [one["spec"] for one in by_kind["ValidatingAdmissionPolicyBinding"]]
        denying = {one["policyName"] for one in bindings if "Deny" in one["validationActions"]}
        policies = [one for one in by_kind["ValidatingAdmissionPolicy"] if one["metadata"]["name"] in denying]
        yield Rehearsal(Judge(policies, by_kind["ConfigMap"][0]))
        return
    async with behind_the_guard(request.getfixturevalue("guarded_server")) as real:
        yield real
