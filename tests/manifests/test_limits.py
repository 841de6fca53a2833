"""The component limits: a pod that asks for VFs by annotation gets the limit that quotas and autoscalers count."""

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import kubernetes_validate
import pytest

from devcluster.apiserver.access.policies import evaluate
from mooring import names
from mooring.annotations.request import read_request
from mooring.kube.access import load_access
from tests.manifests.admission import Judge, Rehearsal, User
from tests.manifests.rendering import raw
from tests.support.polling import eventually

FOLDER = "components/limits"
VFS = names.RIT_VFS
ALICE = User("alice")
REFUSED = "a pod with interfaces must limit 'rdma-sriov/vf' to their number"


def policy(kind: str) -> dict[str, Any]:
    (found,) = [one for one in raw(f"{FOLDER}/policy.yaml") if one["kind"] == kind]
    return found


def pod(text: str | None, resources: Any = None, key: str = names.REQUEST, **spec: Any) -> dict[str, Any]:
    container = {"name": "c", "image": "i"} | ({} if resources is None else {"resources": resources})
    metadata = {"name": "p"} | ({} if text is None else {"annotations": {key: text}})
    return {"metadata": metadata, "spec": {"containers": [container], **spec}}


def mutated(obj: dict[str, Any]) -> dict[str, Any]:
    """Return the first container's resources after the mutation, by the CEL library and RFC 6902's ``add``.

    The library has no type JSONPatch, whose fields are those of a map here.
    """
    spec = policy("MutatingAdmissionPolicy")["spec"]
    known: dict[str, Any] = {"object": obj, "oldObject": None, "request": {}, "params": None, "variables": {}}
    resources: dict[str, Any] = obj["spec"]["containers"][0].get("resources", {})
    if not all(evaluate(one["expression"], known) for one in spec["matchConditions"]):
        return resources
    for variable in spec["variables"]:
        known["variables"][variable["name"]] = evaluate(variable["expression"], known)
    (mutation,) = spec["mutations"]
    expression = mutation["jsonPatch"]["expression"].replace("JSONPatch{", "{")
    patches = evaluate(re.sub(r"\b(op|path|value):", r"'\1':", expression), known)
    container = {key: value for key, value in obj["spec"]["containers"][0].items() if value is not None}
    for patch in patches:
        *folders, last = patch["path"].removeprefix("/spec/containers/0/").split("/")
        target = container
        for folder in folders:
            target = target[folder]
        assert patch["op"] == "add"
        target[last.replace("~1", "/")] = patch["value"]
    return dict(container["resources"])


async def refusal(obj: dict[str, Any]) -> str:
    return await Rehearsal(Judge([policy("ValidatingAdmissionPolicy")], {})).create(ALICE, "pods", obj)


COUNTED = [
    "[{}]",
    " [ {} , {} ,\n{} ] ",
    '[{"min_tx_rate":15000,"max_tx_rate":20000},{"network":"rail1","name":"rdma1"},{}]',
    '[{"containers":["a","b"]},{"containers":["a"]}]',
    '[{"network":"ns/a]b"},{}]',
]
NOT_COUNTED = [
    '[{"network":"},{"}]',
    '[{"network":"{"},{}]',
    '[{"network":"a\\"},{"}]',
    '[{"x":{}}]',
    "[[{}],{}]",
    "{}",
    "x",
    "",
    "[{}",
    "[{},]",
]


@pytest.mark.parametrize("key", [names.REQUEST, names.RIT_REQUEST])
@pytest.mark.parametrize("text", COUNTED)
async def test_a_list_that_can_be_counted_becomes_the_limit(text: str, key: str) -> None:
    """As many as there are interfaces, in limits and requests, as text: a quantity of its own."""
    count = text.count("{")
    assert mutated(pod(text, key=key)) == {"limits": {VFS: str(count)}, "requests": {VFS: str(count)}}
    limited = {"limits": {VFS: str(count)}}
    assert await refusal(pod(text, limited, key)) == ""
    if key == names.REQUEST and "ns/" not in text:
        request = read_request({key: text})
        assert request is not None
        assert len(request.interfaces) == count


@pytest.mark.parametrize("text", NOT_COUNTED)
async def test_a_list_that_cannot_be_counted_is_refused(text: str) -> None:
    """A wrong count would be worse than none; who gives the limit by hand is let through."""
    assert mutated(pod(text)) == {}
    assert REFUSED in await refusal(pod(text))
    assert await refusal(pod(text, {"limits": {VFS: "1"}})) == ""


@pytest.mark.parametrize("resources", [{}, {"limits": {"cpu": "1"}}, {"requests": {"cpu": "1"}}, {"claims": []}])
def test_what_the_container_has_stays(resources: dict[str, Any]) -> None:
    """The patch makes only the folders that are missing."""
    found = mutated(pod("[{},{}]", resources))
    assert found["limits"] == resources.get("limits", {}) | {VFS: "2"}
    assert found["requests"] == resources.get("requests", {}) | {VFS: "2"}


@pytest.mark.parametrize("resources", [{"limits": {VFS: "7"}}, {"requests": {VFS: "7"}}])
async def test_a_limit_that_is_there_is_left_alone(resources: dict[str, Any]) -> None:
    """Right or wrong: the scheduler compares it with the interfaces. Any container may have it."""
    assert mutated(pod("[{}]", resources)) == resources
    assert await refusal(pod("[{}]", resources)) == ""
    starting = [{"name": "i", "image": "i", "resources": resources}]
    assert mutated(pod("[{}]", initContainers=starting)) == {}


@pytest.mark.parametrize("text", [None, "[]", " [ ] "])
async def test_pods_that_ask_for_nothing_are_not_concerned(text: str | None) -> None:
    """They get no limit and are not refused."""
    assert mutated(pod(text)) == {}
    assert await refusal(pod(text)) == ""


@pytest.mark.parametrize("before", [None, "[]", "[{}]"])
@pytest.mark.parametrize("subresource", ["", "status"])
async def test_a_request_that_comes_after_the_pod_needs_a_limit(before: str | None, subresource: str) -> None:
    """A quota counts limits, and those are fixed at creation: without one 64 VFs would cost nothing."""
    api = Rehearsal(Judge([policy("ValidatingAdmissionPolicy")], {}))
    limit = {"limits": {VFS: "1"}} if before == "[{}]" else None
    assert await api.create(ALICE, "pods", pod(before, limit)) == ""
    change = {"metadata": {"annotations": {names.REQUEST: "[{},{}]"}}}
    refusal = await api.patch(ALICE, "pods", "p", change, subresource)
    # A limit that is there is compared by the scheduler, whose message has both numbers.
    assert (REFUSED in refusal) == (limit is None)
    assert await api.patch(ALICE, "pods", "p", {"metadata": {"annotations": {"other": "x"}}}, subresource) == ""


async def test_a_pod_without_a_limit_that_is_older_than_the_policy_goes_on() -> None:
    """It may get other annotations, and, on a node, other rates."""
    api, older = Rehearsal(Judge([], {})), pod("[{}]")
    assert await api.create(ALICE, "pods", older) == ""
    api.judge.policies = [policy("ValidatingAdmissionPolicy")]
    assert await api.patch(ALICE, "pods", "p", {"metadata": {"annotations": {"other": "x"}}}) == ""
    assert REFUSED in await api.patch(ALICE, "pods", "p", {"metadata": {"annotations": {names.REQUEST: "[{},{}]"}}})
    await api.bind(ALICE, "p", {})
    rates = {"metadata": {"annotations": {names.REQUEST: '[{"min_tx_rate":5000}]'}}}
    assert await api.patch(ALICE, "pods", "p", rates) == ""


def test_its_objects_are_as_kubernetes_schemas_want_them() -> None:
    """Of the newest version that the schemas know: older ones have this kind as a beta at most."""
    for document in raw(f"{FOLDER}/policy.yaml"):
        kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)


@pytest.fixture
async def limited(guarded_server: Path) -> AsyncIterator[Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]]:
    """Apply the component to a real API server; return what creates a pod there and answers with it, or the refusal."""
    access = load_access(str(guarded_server))
    admission = "/apis/admissionregistration.k8s.io/v1"
    paths = {one["kind"]: f"{admission}/{one['kind'].lower().replace('policy', 'policies')}" for one in _documents()}
    paths = {kind: path.replace("policiesbinding", "policybindings") for kind, path in paths.items()}
    async with aiohttp.ClientSession() as session:

        async def send(method: str, path: str, body: Any = None) -> tuple[int, dict[str, Any]]:
            url, tls = access.server + path, access.tls or True
            async with session.request(method, url, json=body, headers=access.headers(), ssl=tls) as got:
                return got.status, await got.json()

        async def create(obj: dict[str, Any]) -> dict[str, Any]:
            spec = {"schedulerName": "mooring", "automountServiceAccountToken": False, **obj["spec"]}
            return (await send("POST", "/api/v1/namespaces/limits/pods?dryRun=All", {**obj, "spec": spec}))[1]

        async def both_act() -> bool:
            counted, not_counted = await create(pod("[{}]")), await create(pod('[{"network":"{"},{}]'))
            return VFS in str(counted.get("spec")) and REFUSED in str(not_counted.get("message"))

        await send("POST", "/api/v1/namespaces", {"metadata": {"name": "limits"}})
        try:
            for document in _documents():
                status, answer = await send("POST", paths[document["kind"]], document)
                if status == 404:
                    pytest.skip(f"tier 'apiserver': this server does not serve {document['kind']} as v1, as 1.36 does")
                assert status == 201, answer
            await eventually(both_act)
            yield create
        finally:
            for document in _documents():
                await send("DELETE", f"{paths[document['kind']]}/{document['metadata']['name']}")


def _documents() -> list[dict[str, Any]]:
    return list(raw(f"{FOLDER}/policy.yaml"))


@pytest.mark.apiserver
async def test_a_real_api_server_counts_as_the_library_does(
    limited: Callable[[dict[str, Any]], Awaitable[dict[str, Any]]],
) -> None:
    """The limit, what stays of the container, and what is refused are the same there as in the tests above."""
    for text in COUNTED:
        for resources in (None, {"limits": {"cpu": "1"}}, {"limits": {VFS: "7"}}):
            wanted = pod(text, resources)
            made = await limited(wanted)
            assert made.get("kind") == "Pod", made
            got = made["spec"]["containers"][0]["resources"]
            limits = mutated(wanted)["limits"]
            # Kubernetes' own default: a request that is absent is the limit.
            assert got == {"limits": limits, "requests": limits}, text
    for text in NOT_COUNTED:
        message = (await limited(pod(text))).get("message", "")
        # Of several policies that refuse a pod the server names one, and not always the same.
        assert REFUSED in message or "annotation 'mooring.dev/interfaces': not a JSON list" in message, text
    for nothing in (None, "[]", " [ ] "):
        assert (await limited(pod(nothing)))["spec"]["containers"][0]["resources"] == {}
