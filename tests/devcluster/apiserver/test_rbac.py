"""Tokens and RBAC: who is let in, in the words of a real server."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import aiohttp
import msgspec
import pytest

from devcluster.apiserver.serve import ApiServer, Options
from tests.devcluster.apiserver.conftest import Access, Api, connected, pod

_RBAC = "/apis/rbac.authorization.k8s.io/v1"


@dataclass(slots=True)
class Account:
    """A service account of the test's own namespace."""

    api: Api
    name: str
    token: str = ""

    @property
    def path(self) -> str:
        return f"/api/v1/namespaces/{self.api.namespace}/serviceaccounts/{self.name}"

    @property
    def user(self) -> str:
        return f"system:serviceaccount:{self.api.namespace}:{self.name}"

    async def log_in(self, **bound: Any) -> None:
        spec = {"expirationSeconds": 600, **({"boundObjectRef": bound} if bound else {})}
        self.token = (await self.api.ok("POST", f"{self.path}/token", {"spec": spec}))["status"]["token"]

    async def may(self, *rules: Any, cluster: bool = False) -> None:
        """Give the account a role with these rules, in its namespace or everywhere."""
        prefix, base = ("Cluster", _RBAC) if cluster else ("", f"{_RBAC}/namespaces/{self.api.namespace}")
        name = f"{self.api.namespace}-{len(rules)}-{prefix.lower()}"
        await self.api.ok("POST", f"{base}/{prefix.lower()}roles", {"metadata": {"name": name}, "rules": rules})
        subject = {"kind": "ServiceAccount", "name": self.name, "namespace": self.api.namespace}
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": f"{prefix}Role", "name": name}
        binding = {"metadata": {"name": name}, "roleRef": reference, "subjects": [subject]}
        await self.api.ok("POST", f"{base}/{prefix.lower()}rolebindings", binding)

    async def call(self, method: str, path: str, body: Any = None) -> tuple[int, str]:
        """Send a request with the account's token; return status and message."""
        data = None if body is None else msgspec.json.encode(body)
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {self.token}"}
        request = self.api.session.request(method, self.api.url + path, data=data, headers=headers, ssl=self.api.tls)
        async with request as response:
            return response.status, (await response.json()).get("message", "")


@pytest.fixture(params=["devcluster", pytest.param("real", marks=pytest.mark.apiserver)])
async def account(request: pytest.FixtureRequest) -> AsyncIterator[Account]:
    """Make a service account without any right, on devcluster's server and on a real one."""
    if request.param == "devcluster":
        server = ApiServer(Options(rbac=True))
        async with server, connected(server.url, token=server.cluster.tokens.admin) as api:
            yield await _made(api)
        return
    access: Access = request.getfixturevalue("real_server")
    async with connected(access.url, access.context(), access.token) as api:
        yield await _made(api)


async def _made(api: Api) -> Account:
    account = Account(api, "someone")
    await api.ok("POST", f"/api/v1/namespaces/{api.namespace}/serviceaccounts", {"metadata": {"name": account.name}})
    await account.log_in()
    return account


async def test_without_a_role_nothing_is_allowed_and_the_answer_names_everything(account: Account) -> None:
    """User, verb, resource with its subresource, API group, and where."""
    namespace = account.api.namespace
    user = f'User "{account.user}"'
    assert await account.call("GET", "/api/v1/nodes") == (
        403,
        f'nodes is forbidden: {user} cannot list resource "nodes" in API group "" at the cluster scope',
    )
    assert await account.call("GET", f"/apis/apps/v1/namespaces/{namespace}/replicasets/r") == (
        403,
        f'replicasets.apps "r" is forbidden: {user} cannot get resource "replicasets" in API group "apps" in the '
        f'namespace "{namespace}"',
    )
    binding = {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}}
    assert await account.call("POST", f"{account.api.pods}/p/binding", binding) == (
        403,
        f'pods "p" is forbidden: {user} cannot create resource "pods/binding" in API group "" in the namespace '
        f'"{namespace}"',
    )


async def test_a_role_counts_in_its_namespace_for_its_verbs_and_names_only(account: Account) -> None:
    """A right to pods is none to pods/status; one by name does not cover others, or a list of all."""
    pods = account.api.pods
    await account.may(
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["create", "list"]},
        {"apiGroups": [""], "resources": ["pods"], "resourceNames": ["mine"], "verbs": ["get", "watch"]},
    )
    assert (await account.call("POST", pods, pod("mine")))[0] == 201
    assert (await account.call("GET", pods))[0] == 200
    assert (await account.call("GET", f"{pods}/mine"))[0] == 200
    assert (await account.call("GET", f"{pods}/other"))[0] == 403
    assert (await account.call("GET", f"{pods}/mine/status"))[0] == 403
    assert (await account.call("DELETE", f"{pods}/mine"))[0] == 403
    assert (await account.call("GET", "/api/v1/pods"))[0] == 403
    assert (await account.call("GET", f"{pods}?watch=1&timeoutSeconds=1"))[0] == 403


async def test_a_list_that_selects_one_name_asks_for_that_object(account: Account) -> None:
    """A right by name is enough for such a list."""
    await account.may(
        {"apiGroups": [""], "resources": ["nodes"], "resourceNames": ["n1"], "verbs": ["list"]}, cluster=True
    )
    assert (await account.call("GET", "/api/v1/nodes?fieldSelector=metadata.name%3Dn1"))[0] == 200
    assert (await account.call("GET", "/api/v1/nodes?fieldSelector=metadata.name%3Dn2"))[0] == 403
    assert (await account.call("GET", "/api/v1/nodes"))[0] == 403


async def test_a_role_of_the_cluster_counts_everywhere(account: Account) -> None:
    """Wildcards count too, and only for what they cover."""
    await account.may({"apiGroups": ["*"], "resources": ["*/status"], "verbs": ["get"]}, cluster=True)
    await account.api.pod("p")
    assert (await account.call("GET", f"{account.api.pods}/p/status"))[0] == 200
    assert (await account.call("GET", f"{account.api.pods}/p"))[0] == 403


async def test_tokens_that_nobody_was_given_or_whose_account_is_gone_are_refused(account: Account) -> None:
    """The answer is 401, without further details."""
    await account.api.ok("DELETE", account.path)
    assert await account.call("GET", "/api/v1/nodes") == (401, "Unauthorized")
    account.token = "made-up"
    assert await account.call("GET", "/api/v1/nodes") == (401, "Unauthorized")


async def test_a_token_says_to_which_node_its_pod_is_bound() -> None:
    """Admission reads it there; bound to a pod of that name gone by then, the token is void, as after its time."""
    clock = [datetime.now(UTC)]
    async with ApiServer(Options(rbac=True), lambda: clock[0]) as server:
        tokens, store = server.cluster.tokens, server.cluster.store
        async with connected(server.url, token=tokens.admin) as api:
            account = await _made(api)
            await api.pod("p")
            await api.bind("p", "n1")
            await account.log_in(kind="Pod", apiVersion="v1", name="p")
            user = tokens.user(f"Bearer {account.token}", store, clock[0])
            assert (user.name, user.extra["authentication.kubernetes.io/node-name"]) == (account.user, ("n1",))
            await api.ok("DELETE", f"{api.pods}/p?gracePeriodSeconds=0")
            assert (await account.call("GET", "/api/v1/nodes"))[0] == 401
            await account.log_in()
            clock[0] += timedelta(seconds=601)
            assert (await account.call("GET", "/api/v1/nodes"))[0] == 401


async def test_without_a_token_nobody_is_let_in_but_health_answers() -> None:
    """The kubeconfig's own token may do anything."""
    async with ApiServer(Options(rbac=True)) as server, aiohttp.ClientSession(server.url) as session:
        async with session.get("/api/v1/nodes") as response:
            assert response.status == 403
            assert (await response.json())["message"].startswith('nodes is forbidden: User "system:anonymous" cannot')
        async with session.get("/readyz") as response:
            assert response.status == 200
        assert server.cluster.tokens.admin in server.kubeconfig_text()
