"""Claims, volumes, classes: what is completed at creation, what is fixed, what holds a deletion. On both servers."""

from typing import Any

import pytest

MERGE = "application/merge-patch+json"
CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
VOLUMES = "/api/v1/persistentvolumes"


def _claims(api: Any) -> str:
    return f"/api/v1/namespaces/{api.namespace}/persistentvolumeclaims"


async def _claim(api: Any, name: str = "c", **spec: Any) -> Any:
    resources = {"requests": {"storage": "1Gi"}}
    body = {"metadata": {"name": name}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": resources, **spec}}
    return await api.ok("POST", _claims(api), body)


async def _volume(api: Any, **spec: Any) -> Any:
    host = {"hostPath": {"path": "/x"}, "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]}
    return await api.ok("POST", VOLUMES, {"metadata": {"name": f"v-{api.namespace}"}, "spec": {**host, **spec}})


async def _discard(api: Any, path: str) -> None:
    await api.ok("PATCH", path, {"metadata": {"finalizers": None}}, MERGE)
    await api.ok("DELETE", path)


async def test_a_new_claim_is_pending_and_protected(api: Any) -> None:
    """It is completed with its mode, and its deletion waits for the pods that use it."""
    made = await _claim(api)
    assert made["spec"]["volumeMode"] == "Filesystem"
    assert made["status"] == {"phase": "Pending"}
    assert made["metadata"]["finalizers"] == ["kubernetes.io/pvc-protection"]
    await api.ok("DELETE", f"{_claims(api)}/c")
    assert "deletionTimestamp" in (await api.ok("GET", f"{_claims(api)}/c"))["metadata"]
    await api.ok("PATCH", f"{_claims(api)}/c", {"metadata": {"finalizers": None}}, MERGE)
    assert (await api.call("GET", f"{_claims(api)}/c"))[0] == 404


async def test_a_claim_without_modes_or_size_is_refused(api: Any) -> None:
    """The answer is 422 and names both fields."""
    code, answer = await api.call("POST", _claims(api), {"metadata": {"name": "c"}, "spec": {}})
    assert code == 422
    fields = {cause["field"] for cause in answer["details"]["causes"]}
    assert fields == {"spec.accessModes", "spec.resources[storage]"}


async def test_a_claim_gets_its_volume_once_and_nothing_else_changes(api: Any) -> None:
    """The client that binds it may write the volume's name; then the spec is fixed."""
    await _claim(api)
    path = f"{_claims(api)}/c"
    await api.ok("PATCH", path, {"spec": {"volumeName": "v1"}}, MERGE)
    code, answer = await api.call("PATCH", path, {"spec": {"volumeName": "v2"}}, MERGE)
    assert (code, answer["reason"], answer["details"]["causes"][0]["field"]) == (422, "Invalid", "spec")
    assert "spec is immutable after creation except resources.requests" in answer["message"]
    annotated = await api.ok("PATCH", path, {"metadata": {"annotations": {"a": "b"}}}, MERGE)
    assert annotated["metadata"]["annotations"] == {"a": "b"}


async def test_a_claims_status_is_written_by_itself(api: Any) -> None:
    """A phase in the main resource is ignored; in the subresource it is kept."""
    await _claim(api)
    path = f"{_claims(api)}/c"
    assert (await api.ok("PATCH", path, {"status": {"phase": "Bound"}}, MERGE))["status"]["phase"] == "Pending"
    assert (await api.ok("PATCH", f"{path}/status", {"status": {"phase": "Bound"}}, MERGE))["status"][
        "phase"
    ] == "Bound"


async def test_a_new_volume_is_pending_protected_and_takes_a_claim(api: Any) -> None:
    """The claim's reference is written by a patch whose version is a precondition."""
    made = await _volume(api)
    path = f"{VOLUMES}/{made['metadata']['name']}"
    try:
        assert (made["spec"]["volumeMode"], made["spec"]["persistentVolumeReclaimPolicy"]) == ("Filesystem", "Retain")
        assert made["status"]["phase"] == "Pending"
        assert made["metadata"]["finalizers"] == ["kubernetes.io/pv-protection"]
        reference = {"kind": "PersistentVolumeClaim", "namespace": api.namespace, "name": "c", "uid": "u"}
        version = made["metadata"]["resourceVersion"]
        patch = {"metadata": {"resourceVersion": version}, "spec": {"claimRef": reference}}
        taken = await api.ok("PATCH", path, patch, MERGE)
        assert taken["spec"]["claimRef"]["uid"] == "u"
        code, answer = await api.call("PATCH", path, patch, MERGE)
        assert (code, answer["reason"]) == (409, "Conflict")
    finally:
        await _discard(api, path)


async def test_where_a_volume_can_be_used_is_fixed(api: Any) -> None:
    """Another node affinity is answered with 422."""
    term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
    made = await _volume(api, nodeAffinity={"required": {"nodeSelectorTerms": [term]}})
    path = f"{VOLUMES}/{made['metadata']['name']}"
    try:
        other = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["b"]}]}
        patch = {"spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": [other]}}}}
        code, answer = await api.call("PATCH", path, patch, MERGE)
        assert (code, answer["details"]["causes"][0]["field"]) == (422, "nodeAffinity")
    finally:
        await _discard(api, path)


@pytest.mark.parametrize("mode", [None, "WaitForFirstConsumer"])
async def test_a_class_binds_at_once_unless_it_says_otherwise_and_keeps_to_it(api: Any, mode: str | None) -> None:
    """The mode is completed at creation and fixed then."""
    name = f"sc-{api.namespace}"
    body = {"metadata": {"name": name}, "provisioner": "p", **({"volumeBindingMode": mode} if mode else {})}
    made = await api.ok("POST", CLASSES, body)
    try:
        assert (made["reclaimPolicy"], made["volumeBindingMode"]) == ("Delete", mode or "Immediate")
        other = "Immediate" if mode else "WaitForFirstConsumer"
        code, answer = await api.call("PATCH", f"{CLASSES}/{name}", {"volumeBindingMode": other}, MERGE)
        assert (code, answer["details"]["causes"][0]["field"]) == (422, "volumeBindingMode")
    finally:
        await api.ok("DELETE", f"{CLASSES}/{name}")


async def test_a_claim_without_a_class_gets_the_default_one(api: Any) -> None:
    """A claim that requests no class gets none."""
    name = f"sc-{api.namespace}"
    marked = {"name": name, "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}
    await api.ok("POST", CLASSES, {"metadata": marked, "provisioner": "p"})
    try:
        # A real server's admission follows classes by a watch.
        classes = [(await _claim(api, f"c{attempt}"))["spec"].get("storageClassName") for attempt in range(50)]
        assert classes[-1] == name
        assert (await _claim(api, "none", storageClassName=""))["spec"]["storageClassName"] == ""
    finally:
        await api.ok("DELETE", f"{CLASSES}/{name}")


async def test_what_nodes_can_attach_and_what_is_attached_is_served(api: Any) -> None:
    """CSINodes and attachments are served cluster-wide."""
    for plural, spec in (
        ("csinodes", {"drivers": [{"name": "d", "nodeID": "n", "allocatable": {"count": 2}}]}),
        ("volumeattachments", {"attacher": "d", "nodeName": "n", "source": {"persistentVolumeName": "v"}}),
    ):
        path, name = f"/apis/storage.k8s.io/v1/{plural}", f"x-{api.namespace}"
        await api.ok("POST", path, {"metadata": {"name": name}, "spec": spec})
        listed = await api.ok("GET", path)
        assert (
            any(one["metadata"]["name"] == name and one["spec"] == spec for one in listed["items"]) or plural[0] == "c"
        )
        await api.ok("DELETE", f"{path}/{name}")
