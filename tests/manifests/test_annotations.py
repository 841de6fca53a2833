"""The policy that warns of misspelt annotations: which it names, on what, and that it refuses nothing."""

import re
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from advertiser.formats.network_status import DIGEST_KEY
from cli.node.fleet import nodes
from cli.node.plan import turns
from cli.plugin.reports.objects import KNOWN, UNKNOWN
from devcluster.apiserver.access.policies import Write, concerns, evaluate, refusals
from docs.hooks.texts import strings
from mooring import names
from mooring.gpu.request import RESOURCE
from mooring.kube.access import load_access
from mooring.kube.guard import POLICIES
from tests.manifests.conftest import behind_the_guard
from tests.manifests.rendering import raw
from tests.support.polling import eventually

POLICY, BINDING = raw("base/guard/annotations.yaml")
# Keys of ours that no pod has, and the beginning of some that it may have.
OF_OTHERS = {
    *(names.INVENTORY, names.RATES_IN_FORCE, names.WHY, names.DRAIN, names.DRAIN_REASONS, RESOURCE),
    *("mooring.dev/policy-probe", turns.KEY, nodes.LABEL),
}
BEGINNING = {names.REQUEST_OF.rstrip(".")}


def annotated(*keys: str) -> dict[str, Any]:
    """Return the part of a pod, or of a template, that has the annotations."""
    return {"metadata": {"annotations": dict.fromkeys(keys, "{}")}, "spec": {"containers": [{"name": "c"}]}}


def warnings(resource: str, obj: dict[str, Any], operation: str = "CREATE", group: str = "") -> list[str]:
    write = Write(group, resource, operation, {"username": "alice"}, obj, obj if operation == "UPDATE" else None)
    return [one.message for one in refusals(POLICY, None, write)] if concerns(POLICY, write) else []


def test_each_key_that_a_pod_may_have_is_known() -> None:
    """The policy has the keys that lint, doctor and explain know."""
    (known,) = [one["expression"] for one in POLICY["spec"]["variables"] if one["name"] == "known"]
    assert sorted(evaluate(known, {})) == sorted(KNOWN)
    assert warnings("pods", annotated(*KNOWN, f"{names.REQUEST_OF}gpu", names.RIT_REQUEST, "example.com/a")) == []


def test_the_known_keys_are_those_of_the_programs() -> None:
    """A key that a program comes to read must not be warned of."""
    own = {text.pattern for text in strings() if re.fullmatch(r"mooring\.dev/[a-z-]+", text.pattern)}
    assert own - OF_OTHERS - BEGINNING == KNOWN
    assert DIGEST_KEY in KNOWN


@pytest.mark.parametrize("operation", ["CREATE", "UPDATE"])
def test_a_misspelt_key_is_named_with_the_known_ones(operation: str) -> None:
    """All that are misspelt stand in one warning, in any order, with the words of lint."""
    (warning,) = warnings("pods", annotated("mooring.dev/vf", names.REQUEST, "mooring.dev/Group"), operation)
    start, _, known = warning.partition(": no program of Mooring reads it; known are ")
    assert sorted(start.removeprefix("unknown annotation ").split(", ")) == ["'mooring.dev/Group'", "'mooring.dev/vf'"]
    assert known == UNKNOWN.partition("known are ")[2]


@pytest.mark.parametrize(
    ("group", "resource"),
    [
        ("apps", "daemonsets"),
        ("apps", "deployments"),
        ("apps", "statefulsets"),
        ("batch", "jobs"),
        ("batch", "cronjobs"),
    ],
)
def test_the_template_of_a_workload_is_looked_at(group: str, resource: str) -> None:
    """Whoever applies it reads the warning; no pod of its own would show it to anybody."""
    template = annotated("mooring.dev/vf")
    spec = {"template": template}
    obj = {"metadata": {"name": "a"}, "spec": {"jobTemplate": {"spec": spec}} if resource == "cronjobs" else spec}
    (warning,) = warnings(resource, obj, group=group)
    assert warning.startswith("unknown annotation 'mooring.dev/vf': ")
    template["metadata"] = {}
    assert warnings(resource, obj, group=group) == []
    del template["metadata"]
    assert warnings(resource, obj, group=group) == []


def test_of_what_a_controller_has_made_nothing_is_said() -> None:
    """Only its log would have it, once a pod. An owner that is no controller has written nothing."""
    pod = annotated("mooring.dev/vf")
    for owner, finds in (({"controller": True}, False), ({"controller": False}, True), ({}, True)):
        pod["metadata"]["ownerReferences"] = [{"kind": "Job", "name": "a", **owner}]
        assert bool(warnings("pods", pod)) is finds


@pytest.mark.parametrize("resource", ["pods/status", "pods/binding", "bindings", "nodes", "replicasets"])
def test_other_writes_are_not_looked_at(resource: str) -> None:
    """The kubelet's, the scheduler's and the controllers' come by thousands."""
    assert warnings(resource, annotated("mooring.dev/vf")) == []


def test_nothing_is_refused() -> None:
    """Neither by the rule, nor because it cannot be judged; so nobody counts it among the policies that guard."""
    assert BINDING["spec"] == {"policyName": POLICY["metadata"]["name"], "validationActions": ["Warn"]}
    assert POLICY["spec"]["failurePolicy"] == "Ignore"
    assert "paramKind" not in POLICY["spec"]
    assert POLICY["metadata"]["name"] not in POLICIES


@pytest.mark.apiserver
async def test_a_real_api_server_warns_too(guarded_server: Path) -> None:
    """It compiles the policy within its bounds of cost, and answers with the warning beside the object."""
    async with behind_the_guard(guarded_server), aiohttp.ClientSession() as session:
        access = load_access(str(guarded_server))

        async def warned(path: str, obj: dict[str, Any]) -> list[str]:
            url, tls = f"{access.server}{path}?dryRun=All", access.tls or True
            async with session.post(url, json=obj, headers=access.headers(), ssl=tls) as got:
                assert got.status == 201, await got.text()
                return [one for one in got.headers.getall("Warning", []) if "mooring-annotations" in one]

        pod = annotated("mooring.dev/vf")
        pod["metadata"]["name"] = "p"
        pod["spec"] = {"automountServiceAccountToken": False, "containers": [{"name": "c", "image": "i"}]}
        template = {"metadata": {**pod["metadata"], "labels": {"app": "a"}}, "spec": pod["spec"]}
        deployment = {
            "metadata": {"name": "d"},
            "spec": {"selector": {"matchLabels": {"app": "a"}}, "template": template},
        }

        async def warns() -> bool:
            return bool(await warned("/api/v1/namespaces/default/pods", pod))

        await eventually(warns)
        (warning,) = await warned("/apis/apps/v1/namespaces/default/deployments", deployment)
        assert "unknown annotation 'mooring.dev/vf': no program of Mooring reads it" in warning
        del pod["metadata"]["annotations"]
        assert await warned("/api/v1/namespaces/default/pods", pod) == []
