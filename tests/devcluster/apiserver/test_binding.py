"""pods/binding, row by row, as measured on a real server. Against devcluster's server and a real one."""

from collections.abc import Callable, Coroutine
from typing import Any

import aiohttp
import pytest

from scheduler.server.pb.binding_pb2 import Binding, ObjectMeta, ObjectReference, TypeMeta, Unknown
from scheduler.server.writes import MAGIC, MEDIA_TYPE
from tests.devcluster.apiserver.conftest import pod
from tests.support.polling import eventually

MERGE = "application/merge-patch+json"
OTHER_UID = "00000000-0000-0000-0000-000000000000"
# The sum of keys and values, in bytes.
ANNOTATIONS_MAX = 262_144
Row = Callable[[Any], Coroutine[Any, Any, Any]]


async def _wrong_uid(api: Any) -> Any:
    await api.pod("p")
    return await api.bind("p", uid=OTHER_UID)


async def _recreated(api: Any) -> Any:
    old = await api.pod("p")
    await api.ok("DELETE", f"{api.pods}/p")
    await api.pod("p")
    return await api.bind("p", uid=old["metadata"]["uid"])


async def _stale_version(api: Any) -> Any:
    made = await api.pod("p")
    await api.ok("PATCH", f"{api.pods}/p", {"metadata": {"annotations": {"a": "b"}}}, MERGE)
    return await api.bind("p", uid=made["metadata"]["uid"], resourceVersion=made["metadata"]["resourceVersion"])


async def _bound_already(api: Any) -> Any:
    await api.pod("p")
    assert (await api.bind("p", "n1", annotations={"a": "first"}))[0] == 201
    return await api.bind("p", "n1", annotations={"a": "second"})


async def _bound_elsewhere(api: Any) -> Any:
    await api.pod("p")
    assert (await api.bind("p", "n1"))[0] == 201
    return await api.bind("p", "n2")


async def _gated(api: Any) -> Any:
    containers = [{"name": "c", "image": "registry.example/pause:1"}]
    spec = {"schedulingGates": [{"name": "wait"}], "containers": containers, "automountServiceAccountToken": False}
    await api.ok("POST", api.pods, {"metadata": {"name": "p"}, "spec": spec})
    return await api.bind("p")


async def _being_deleted(api: Any) -> Any:
    await api.pod("p", finalizers=["mooring.dev/hold"])
    await api.ok("DELETE", f"{api.pods}/p")
    answer = await api.bind("p")
    await api.ok("PATCH", f"{api.pods}/p", {"metadata": {"finalizers": None}}, MERGE)
    return answer


async def _missing(api: Any) -> Any:
    return await api.bind("p")


async def _another_name(api: Any) -> Any:
    await api.pod("p")
    target = {"kind": "Node", "name": "n1"}
    return await api.call("POST", f"{api.pods}/p/binding", {"metadata": {"name": "q"}, "target": target})


async def _no_node(api: Any) -> Any:
    await api.pod("p")
    return await api.bind("p", "")


async def _to_a_pod(api: Any) -> Any:
    await api.pod("p")
    target = {"kind": "Pod", "name": "n1"}
    return await api.call("POST", f"{api.pods}/p/binding", {"metadata": {"name": "p"}, "target": target})


async def _too_large_for_etcd(api: Any) -> Any:
    await api.pod("p")
    return await api.bind("p", annotations={"big": "x" * 2_097_152})


async def _too_large(api: Any) -> Any:
    await api.pod("p")
    return await api.bind("p", annotations={"big": "x" * 3_200_000})


REFUSED = [
    (_wrong_uid, 409, "pods", "Precondition failed: UID in precondition"),
    (_recreated, 409, "pods", "Precondition failed: UID in precondition"),
    (_stale_version, 409, "pods", "Precondition failed: ResourceVersion in precondition"),
    (_bound_already, 409, "pods/binding", 'pod p is already assigned to node "n1"'),
    (_bound_elsewhere, 409, "pods/binding", 'pod p is already assigned to node "n1"'),
    (_gated, 409, "pods/binding", "has non-empty .spec.schedulingGates"),
    (_being_deleted, 409, "pods/binding", "is being deleted, cannot be assigned to a host"),
    (_too_large_for_etcd, 409, "pods/binding", "ResourceExhausted"),
    (_missing, 404, "pods", "not found"),
    (_another_name, 400, None, "name in URL does not match name in Binding object"),
    (_no_node, 500, None, "target.name: Required value"),
    (_to_a_pod, 500, None, 'target.kind: Unsupported value: "Pod"'),
    (_too_large, 413, None, "Request entity too large: limit is 3145728"),
]


# aiohttp warns about bodies over 1 MiB.
@pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")
@pytest.mark.parametrize(("row", "code", "kind", "text"), REFUSED, ids=[row.__name__[1:] for row, *_ in REFUSED])
async def test_a_binding_that_is_refused_changes_nothing(
    api: Any, row: Row, code: int, kind: str | None, text: str
) -> None:
    """Status, details.kind and message are what a scheduler distinguishes the reasons by."""
    found, answer = await row(api)
    assert (found, answer.get("details", {}).get("kind")) == (code, kind), answer
    assert text in answer["message"]
    code, pod = await api.call("GET", f"{api.pods}/p")
    if code == 200:
        assert pod["spec"].get("nodeName") == ("n1" if row in (_bound_already, _bound_elsewhere) else None)
        assert pod["metadata"].get("annotations", {}).get("a") != "second"


async def test_a_binding_writes_over_annotations_and_labels(api: Any) -> None:
    """201 with a Status and no Binding; also to a node that does not exist."""
    await api.pod("p", annotations={"a": "old", "own": "kept"}, labels={"l": "old", "own": "kept"})
    code, answer = await api.bind("p", "no-such-node", annotations={"a": "new"}, labels={"l": "new", "m": "1"})
    assert (code, answer["kind"], answer["status"], answer["code"]) == (201, "Status", "Success", 201)
    pod = await api.ok("GET", f"{api.pods}/p")
    assert pod["spec"]["nodeName"] == "no-such-node"
    assert pod["metadata"]["annotations"] == {"a": "new", "own": "kept"}
    assert pod["metadata"]["labels"] == {"l": "new", "m": "1", "own": "kept"}


async def test_a_pod_gets_its_nodes_zone_and_region_with_the_node(api: Any) -> None:
    """The admission plugin PodTopologyLabels, over the pod's own labels; also where the pod is created with a node."""
    zone, region = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
    name = f"zoned-{api.namespace}"
    labels = {zone: "z1", region: "r1", "disk": "nvme"}
    await api.ok("POST", "/api/v1/nodes", {"metadata": {"name": name, "labels": labels}})
    try:
        await api.pod("p", labels={zone: "mine", "own": "kept"})
        assert (await api.bind("p", name))[0] == 201
        await api.ok("POST", api.pods, pod("q") | {"spec": pod("q")["spec"] | {"nodeName": name}})
        found = [(await api.ok("GET", f"{api.pods}/{one}"))["metadata"]["labels"] for one in ("p", "q")]
        assert found == [{zone: "z1", region: "r1", "own": "kept"}, {zone: "z1", region: "r1"}]
    finally:
        await api.ok("DELETE", f"/api/v1/nodes/{name}")


@pytest.mark.parametrize(
    "annotations", [{"big": "x" * (ANNOTATIONS_MAX + 1)}, {"bad key!!": "v"}], ids=["too large", "no key"]
)
async def test_annotations_of_a_binding_are_not_validated(api: Any, annotations: Any) -> None:
    """They pass with 201 and break the pod: later patches of it, or of its status, are refused; it can be deleted."""
    await api.pod("p")
    assert (await api.bind("p", annotations=annotations))[0] == 201
    path = f"{api.pods}/p"
    for where, patch in (
        (path, {"metadata": {"labels": {"l": "1"}}}),
        (f"{path}/status", {"status": {"message": "m"}}),
    ):
        code, answer = await api.call("PATCH", where, patch, MERGE)
        assert (code, answer["details"]["causes"][0]["field"]) == (422, "metadata.annotations")
    await api.ok("DELETE", f"{path}?gracePeriodSeconds=0")
    assert (await api.call("GET", path))[0] == 404


async def test_annotations_of_a_patch_may_have_just_so_many_bytes(api: Any) -> None:
    """The limit counts keys and values together."""
    await api.pod("p")
    for size, expected in ((ANNOTATIONS_MAX + 1, 422), (ANNOTATIONS_MAX, 200)):
        patch = {"metadata": {"annotations": {"big": "x" * (size - len("big"))}}}
        assert (await api.call("PATCH", f"{api.pods}/p", patch, MERGE))[0] == expected


async def test_a_node_cannot_be_patched_into_a_pod(api: Any) -> None:
    """Only a Binding assigns a node."""
    await api.pod("p")
    code, answer = await api.call("PATCH", f"{api.pods}/p", {"spec": {"nodeName": "n1"}}, MERGE)
    assert (code, answer["reason"]) == (422, "Invalid")


async def test_the_older_path_binds_too(api: Any) -> None:
    """The older path is a POST to the namespace's bindings."""
    await api.pod("p")
    target = {"apiVersion": "v1", "kind": "Node", "name": "n1"}
    binding = {"metadata": {"name": "p", "annotations": {"a": "b"}}, "target": target}
    code, _ = await api.call("POST", f"/api/v1/namespaces/{api.namespace}/bindings", binding)
    pod = await api.ok("GET", f"{api.pods}/p")
    assert (code, pod["spec"]["nodeName"], pod["metadata"]["annotations"]) == (201, "n1", {"a": "b"})


@pytest.mark.parametrize("uid", ["its own", OTHER_UID])
async def test_a_binding_in_protobuf_binds_as_one_in_json(api: Any, uid: str) -> None:
    """As kube-scheduler sends it, and Mooring's scheduler too; its uid is a precondition here as well."""
    made = await api.pod("p")
    uid = made["metadata"]["uid"] if uid == "its own" else uid
    metadata = ObjectMeta(name="p", namespace=api.namespace, uid=uid, annotations={"a": "b"})
    raw = Binding(metadata=metadata, target=ObjectReference(api_version="v1", kind="Node", name="n1"))
    envelope = Unknown(type_meta=TypeMeta(api_version="v1", kind="Binding"), raw=raw.SerializeToString())
    headers = {"Content-Type": MEDIA_TYPE}
    data = MAGIC + envelope.SerializeToString()
    request = aiohttp.ClientSession.request
    path = f"{api.url}{api.pods}/p/binding"
    async with request(api.session, "POST", path, data=data, headers=headers, ssl=api.tls) as answer:
        code = answer.status
    pod = await api.ok("GET", f"{api.pods}/p")
    found = code, pod["spec"].get("nodeName"), pod["metadata"].get("annotations")
    assert found == ((409, None, None) if uid == OTHER_UID else (201, "n1", {"a": "b"}))


@pytest.mark.parametrize("api", [pytest.param("real", marks=pytest.mark.apiserver)], indirect=True)
async def test_leave_to_bind_is_leave_to_annotate_by_a_binding(api: Any) -> None:
    """`create pods/binding` is enough to write annotations, and for no patch. (devcluster's server has no RBAC.)"""
    await api.pod("p")
    await _grant(api, "binder", [{"apiGroups": [""], "resources": ["pods/binding"], "verbs": ["create"]}])
    as_binder = {"Impersonate-User": "binder", "Content-Type": "application/json"}
    target = {"apiVersion": "v1", "kind": "Node", "name": "n1"}
    body = {"metadata": {"name": "p", "annotations": {"a": "b"}}, "target": target}

    async def answer(method: str, path: str, headers: dict[str, str], document: Any) -> int:
        request = aiohttp.ClientSession.request
        async with request(api.session, method, api.url + path, json=document, headers=headers, ssl=api.tls) as found:
            return found.status

    patch = {"metadata": {"annotations": {"c": "d"}}}
    assert await answer("PATCH", f"{api.pods}/p", as_binder | {"Content-Type": MERGE}, patch) == 403
    assert await answer("POST", f"/api/v1/namespaces/{api.namespace}/bindings", as_binder, body) == 403

    async def code_once_granted() -> int | None:
        code = await answer("POST", f"{api.pods}/p/binding", as_binder, body)
        return None if code == 403 else code

    assert await eventually(code_once_granted) == 201
    assert (await api.ok("GET", f"{api.pods}/p"))["metadata"]["annotations"] == {"a": "b"}


async def _grant(api: Any, user: str, rules: list[Any]) -> None:
    group = "rbac.authorization.k8s.io"
    path = f"/apis/{group}/v1/namespaces/{api.namespace}"
    await api.ok("POST", f"{path}/roles", {"metadata": {"name": user}, "rules": rules})
    subjects = [{"kind": "User", "name": user, "apiGroup": group}]
    role = {"kind": "Role", "name": user, "apiGroup": group}
    await api.ok("POST", f"{path}/rolebindings", {"metadata": {"name": user}, "subjects": subjects, "roleRef": role})
