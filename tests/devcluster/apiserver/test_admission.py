"""Service accounts and admission policies, which a real server has by default and devcluster's by an option."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from devcluster.apiserver.serve import ApiServer, Options
from tests.devcluster.apiserver.conftest import Api, connected, pod

_GUARD = Path(__file__).parents[3] / "manifests/base/guard"
_ADMISSION = "/apis/admissionregistration.k8s.io/v1"
_PATHS = {
    "ConfigMap": "/api/v1/namespaces/mooring-system/configmaps",
    "ValidatingAdmissionPolicy": f"{_ADMISSION}/validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": f"{_ADMISSION}/validatingadmissionpolicybindings",
}
_MERGE = "application/merge-patch+json"


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    """Run a server that checks tokens and applies the policies."""
    async with ApiServer(Options(rbac=True, admission=True)) as running:
        yield running


@pytest.fixture
async def api(server: ApiServer) -> AsyncIterator[Api]:
    """Connect as the administrator, with the account `default` that a controller would have made."""
    async with connected(server.url, token=server.cluster.tokens.admin) as found:
        await found.ok("POST", _accounts(found.namespace), {"metadata": {"name": "default"}})
        yield found


def _accounts(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/serviceaccounts"


async def _guard(api: Api) -> None:
    await api.ok("POST", "/api/v1/namespaces", {"metadata": {"name": "mooring-system"}})
    for file in sorted(_GUARD.glob("*.yaml")):
        for document in filter(None, yaml.safe_load_all(file.read_text())):
            if document["kind"] in _PATHS:
                await api.ok("POST", _PATHS[document["kind"]], document)


def _mounting(name: str, **spec: Any) -> Any:
    manifest = pod(name)
    manifest["spec"] |= {"automountServiceAccountToken": True, **spec}
    return manifest


async def test_a_pod_runs_as_its_account_and_is_given_a_token(api: Api) -> None:
    """The projected volume has token, authority and namespace, and every container mounts it."""
    made = await api.ok("POST", api.pods, _mounting("p"))
    assert made["spec"]["serviceAccountName"] == "default"
    (volume,) = made["spec"]["volumes"]
    assert [next(iter(source)) for source in volume["projected"]["sources"]] == [
        "serviceAccountToken",
        "configMap",
        "downwardAPI",
    ]
    (mount,) = made["spec"]["containers"][0]["volumeMounts"]
    assert mount == {
        "name": volume["name"],
        "readOnly": True,
        "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
    }


async def test_a_pod_that_wants_no_token_gets_none(api: Api) -> None:
    """The pod's own field or its account's decides."""
    assert "volumes" not in (await api.ok("POST", api.pods, pod("p")))["spec"]
    await api.ok("POST", _accounts(api.namespace), {"metadata": {"name": "shy"}, "automountServiceAccountToken": False})
    made = pod("q")
    del made["spec"]["automountServiceAccountToken"]
    made["spec"]["serviceAccountName"] = "shy"
    assert "volumes" not in (await api.ok("POST", api.pods, made))["spec"]


async def test_a_pod_of_an_account_that_is_not_there_is_refused(api: Api) -> None:
    """The message is a real server's."""
    code, answer = await api.call("POST", api.pods, _mounting("p", serviceAccountName="nobody"))
    assert code == 403
    assert answer["message"].endswith(
        f'error looking up service account {api.namespace}/nobody: serviceaccount "nobody" not found'
    )


async def test_the_guard_lets_each_advertiser_write_its_own_node_only(server: ApiServer, api: Api) -> None:
    """The token of a pod names the node that the pod is on; the administrator is not an advertiser."""
    await _guard(api)
    for name in ("n1", "n2"):
        await api.ok("POST", "/api/v1/nodes", {"metadata": {"name": name}})
    system = "/api/v1/namespaces/mooring-node"
    await api.ok("POST", "/api/v1/namespaces", {"metadata": {"name": "mooring-node"}})
    await api.ok("POST", f"{system}/serviceaccounts", {"metadata": {"name": "mooring-advertiser"}})
    rules = [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["patch"]}]
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    await api.ok("POST", f"{rbac}/clusterroles", {"metadata": {"name": "a"}, "rules": rules})
    subject = {"kind": "ServiceAccount", "name": "mooring-advertiser", "namespace": "mooring-node"}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "a"}
    binding = {"metadata": {"name": "a"}, "roleRef": reference, "subjects": [subject]}
    await api.ok("POST", f"{rbac}/clusterrolebindings", binding)
    await api.ok("POST", f"{system}/pods", _mounting("a", serviceAccountName="mooring-advertiser", nodeName="n1"))
    bound = {"spec": {"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "a"}}}
    answer = await api.ok("POST", f"{system}/serviceaccounts/mooring-advertiser/token", bound)
    inventory = {"metadata": {"annotations": {"mooring.dev/inventory": "{}"}}}
    headers = {"Authorization": f"Bearer {answer['status']['token']}"}
    async with aiohttp.ClientSession(headers=headers) as session:
        advertiser = Api(server.url, session, "mooring-node")
        await advertiser.ok("PATCH", "/api/v1/nodes/n1", inventory, _MERGE)
        code, refused = await advertiser.call("PATCH", "/api/v1/nodes/n2", inventory, _MERGE)
    assert code == 403
    assert "this advertiser's token is bound to node 'n1', and it writes no other" in refused["message"]
    code, refused = await api.call("PATCH", "/api/v1/nodes/n2", inventory, _MERGE)
    assert (code, "'admin' is not the node's advertiser" in refused["message"]) == (403, True)


async def test_the_guard_asks_its_parameter(api: Api) -> None:
    """Pods with interfaces name the scheduler of the ConfigMap, Mooring's; without it none is admitted."""
    await _guard(api)
    asking = pod("p", annotations={"mooring.dev/interfaces": "[{}]"})
    code, answer = await api.call("POST", api.pods, asking)
    assert code == 422
    assert answer["message"].endswith("a pod with 'mooring.dev/interfaces' names one of: mooring")
    # All that kubectl prints of it.
    (cause,) = answer["details"]["causes"]
    assert answer["message"].endswith(f"is forbidden: {cause['message']}")
    await api.ok("POST", api.pods, {**asking, "spec": {**asking["spec"], "schedulerName": "mooring"}})
    await api.ok("DELETE", f"{_PATHS['ConfigMap']}/mooring-guard")
    other = pod("q", annotations={"mooring.dev/interfaces": "[{}]"})
    code, answer = await api.call("POST", api.pods, {**other, "spec": {**other["spec"], "schedulerName": "mooring"}})
    assert (code, "no params found" in answer["message"]) == (403, True)


async def test_what_is_only_warned_of_is_written_and_the_answer_has_the_warning(api: Api) -> None:
    """As a real server writes it, for kubectl to show; an answer to another request has none."""
    await _guard(api)
    body = pod("p", annotations={"mooring.dev/vf": '"1"'})
    for name, expected in (
        ("p", "299 - \"Validation failed for ValidatingAdmissionPolicy 'mooring-annotations' with binding '"),
        ("q", ""),
    ):
        body["metadata"] |= {"name": name}
        async with api.session.post(api.url + api.pods, json=body) as answer:
            assert answer.status == 201
            assert answer.headers.get("Warning", "").startswith(expected)
            assert ("Warning" in answer.headers) is bool(expected)
        body["metadata"]["annotations"] = {"mooring.dev/interfaces": "[]"}


async def test_a_policy_that_may_fail_lets_pass_what_it_cannot_judge(api: Api) -> None:
    """By `failurePolicy: Ignore`; any other one refuses."""
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    spec = {
        "failurePolicy": "Ignore",
        "matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": "object.metadata.labels.missing == 'a'", "message": "no"}],
    }
    policies = _PATHS["ValidatingAdmissionPolicy"]
    await api.ok("POST", policies, {"metadata": {"name": "odd"}, "spec": spec})
    binding = {"metadata": {"name": "odd"}, "spec": {"policyName": "odd", "validationActions": ["Deny"]}}
    await api.ok("POST", _PATHS["ValidatingAdmissionPolicyBinding"], binding)
    await api.ok("POST", api.pods, pod("p"))
    await api.ok("PATCH", f"{policies}/odd", {"spec": {"failurePolicy": "Fail"}}, _MERGE)
    code, answer = await api.call("POST", api.pods, pod("q"))
    assert (code, "expression could not be evaluated" in answer["message"]) == (403, True)


async def test_nobody_but_the_scheduler_binds_with_an_assignment(api: Api) -> None:
    """The Binding is checked, not only the pod."""
    await _guard(api)
    await api.pod("p")
    code, answer = await api.bind("p", annotations={"mooring.dev/assignment": "{}"})
    assert (code, "alone sets, changes or removes it" in answer["message"]) == (403, True)
    assert (await api.bind("p"))[0] == 201
