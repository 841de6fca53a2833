"""Creates, updates, patches and deletes. Against devcluster's server and a real one."""

import asyncio
from typing import Any

import pytest

from devcluster.apiserver.serve import ApiServer

JSON = "application/json"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
OPERATIONS = "application/json-patch+json"


async def configmap(api: Any, name: str = "c", **data: str) -> tuple[str, Any]:
    """Create a ConfigMap; return its path and itself."""
    maps = f"/api/v1/namespaces/{api.namespace}/configmaps"
    return f"{maps}/{name}", await api.ok("POST", maps, {"metadata": {"name": name}, "data": data})


async def test_a_put_with_a_stale_version_is_refused_and_changes_nothing(api: Any) -> None:
    """The answer is 409 Conflict: the client must fetch again."""
    path, made = await configmap(api, k="1")
    await api.ok("PUT", path, {**made, "data": {"k": "2"}})
    code, answer = await api.call("PUT", path, {**made, "data": {"k": "3"}})
    assert (code, answer["reason"], answer["details"]["kind"]) == (409, "Conflict", "configmaps")
    assert (await api.ok("GET", path))["data"] == {"k": "2"}


@pytest.mark.parametrize("content_type", [MERGE, STRATEGIC])
async def test_a_patch_with_a_stale_version_is_refused(api: Any, content_type: str) -> None:
    """A resourceVersion in a patch is a precondition."""
    path, made = await configmap(api, k="1")
    await api.ok("PATCH", path, {"data": {"k": "2"}}, content_type)
    stale = {"metadata": {"resourceVersion": made["metadata"]["resourceVersion"]}, "data": {"k": "3"}}
    code, answer = await api.call("PATCH", path, stale, content_type)
    assert (code, answer["reason"]) == (409, "Conflict")


OTHER_UID = "00000000-0000-0000-0000-000000000000"


async def test_a_put_with_another_uid_is_a_conflict(api: Any) -> None:
    """An object meant for a namesake is 409: here the uid is a precondition, which comes before the version."""
    path, made = await configmap(api, k="1")
    for metadata in ({"uid": OTHER_UID}, {"uid": OTHER_UID, "resourceVersion": "1"}):
        code, answer = await api.call("PUT", path, {"metadata": {"name": "c", **metadata}})
        assert (code, answer["reason"], answer["details"]["kind"]) == (409, "Conflict", "configmaps")
        uids = f"UID in precondition: {OTHER_UID}, UID in object meta: {made['metadata']['uid']}"
        assert answer["message"].endswith(f"Precondition failed: {uids}")


@pytest.mark.parametrize("content_type", [MERGE, STRATEGIC])
async def test_a_patch_with_another_uid_is_invalid(api: Any, content_type: str) -> None:
    """It is not a precondition there but a change of a fixed field, 422; a version that is stale too is 409."""
    path, _ = await configmap(api, k="1")
    code, answer = await api.call("PATCH", path, {"metadata": {"uid": OTHER_UID}}, content_type)
    assert (code, answer["reason"], answer["details"]["causes"][0]["field"]) == (422, "Invalid", "metadata.uid")
    stale = {"metadata": {"uid": OTHER_UID, "resourceVersion": "1"}}
    code, answer = await api.call("PATCH", path, stale, content_type)
    assert (code, answer["reason"]) == (409, "Conflict")


@pytest.mark.parametrize("method", ["PUT", "PATCH"])
async def test_a_version_that_is_not_a_number_is_not_compared(api: Any, method: str) -> None:
    """The answer is 500 without a reason, as measured."""
    path, _ = await configmap(api)
    body = {"metadata": {"name": "c", "resourceVersion": "abc"}}
    code, answer = await api.call(method, path, body, JSON if method == "PUT" else MERGE)
    assert (code, answer.get("reason")) == (500, None)
    assert answer["message"] == 'strconv.ParseUint: parsing "abc": invalid syntax'


async def test_a_lease_can_be_put_into_being_and_needs_its_version_from_then_on(api: Any) -> None:
    """PUT creates a Lease; a PUT without resourceVersion on an existing one is 422."""
    path = f"/apis/coordination.k8s.io/v1/namespaces/{api.namespace}/leases/l"
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l"}}
    code, made = await api.call("PUT", path, {**lease, "spec": {"holderIdentity": "a", "leaseDurationSeconds": 15}})
    assert code == 201
    code, answer = await api.call("PUT", path, {**lease, "spec": {"holderIdentity": "b"}})
    assert (code, answer["details"]["causes"][0]["field"]) == (422, "metadata.resourceVersion")
    renewed = await api.ok("PUT", path, {**made, "spec": {**made["spec"], "holderIdentity": "b"}})
    assert renewed["spec"]["holderIdentity"] == "b"


async def test_strategic_merge_merges_containers_and_conditions_by_key(api: Any) -> None:
    """An element is found by its merge key and merged; the others stay."""
    await api.pod("p")
    path = f"{api.pods}/p"
    first = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    second = {"type": "Ready", "status": "False"}
    await api.ok("PATCH", f"{path}/status", {"status": {"conditions": [first]}}, STRATEGIC)
    await api.ok("PATCH", f"{path}/status", {"status": {"conditions": [second]}}, STRATEGIC)
    await api.ok(
        "PATCH", path, {"spec": {"containers": [{"name": "c", "image": "registry.example/other:2"}]}}, STRATEGIC
    )
    pod = await api.ok("GET", path)
    assert {one["type"]: one["status"] for one in pod["status"]["conditions"]} == {
        "PodScheduled": "False",
        "Ready": "False",
    }
    (container,) = pod["spec"]["containers"]
    assert (container["image"], container["imagePullPolicy"]) == ("registry.example/other:2", "IfNotPresent")
    gone = {"status": {"conditions": [{"type": "Ready", "$patch": "delete"}]}}
    pod = await api.ok("PATCH", f"{path}/status", gone, STRATEGIC)
    assert [one["type"] for one in pod["status"]["conditions"]] == ["PodScheduled"]


async def test_strategic_merge_replaces_taints_whole(api: Any) -> None:
    """A node's taints are an atomic list."""
    name = f"node-{api.namespace}"
    taints = [{"key": "a", "effect": "NoSchedule"}, {"key": "b", "effect": "NoSchedule"}]
    await api.ok("POST", "/api/v1/nodes", {"metadata": {"name": name}, "spec": {"taints": taints}})
    node = await api.ok("PATCH", f"/api/v1/nodes/{name}", {"spec": {"taints": taints[:1]}}, STRATEGIC)
    await api.ok("DELETE", f"/api/v1/nodes/{name}")
    assert node["spec"]["taints"] == taints[:1]


async def test_a_merge_patch_replaces_lists_and_null_removes(api: Any) -> None:
    """JSON merge patch follows RFC 7396."""
    path, _ = await configmap(api, a="1", b="2")
    changed = await api.ok("PATCH", path, {"data": {"a": None, "c": "3"}}, MERGE)
    assert changed["data"] == {"b": "2", "c": "3"}


async def test_a_json_patch_is_applied_whole_or_not_at_all(api: Any) -> None:
    """RFC 6902: one failing operation, here a test, leaves the object as it was."""
    path, _ = await configmap(api, a="1")
    good = {"op": "add", "path": "/data/b", "value": "2"}
    code, answer = await api.call("PATCH", path, [good, {"op": "test", "path": "/data/a", "value": "9"}], OPERATIONS)
    assert (code, answer["reason"]) == (422, "Invalid")
    assert (await api.ok("GET", path))["data"] == {"a": "1"}
    changed = await api.ok("PATCH", path, [good, {"op": "remove", "path": "/data/a"}], OPERATIONS)
    assert changed["data"] == {"b": "2"}


async def test_an_unknown_patch_type_is_415(api: Any) -> None:
    """A body whose meaning is not known is never guessed at."""
    path, _ = await configmap(api)
    code, answer = await api.call("PATCH", path, {}, "application/nonsense+json")
    assert (code, answer["reason"]) == (415, "UnsupportedMediaType")


async def test_dry_run_answers_as_if_and_stores_nothing(api: Any) -> None:
    """Create, patch and delete with dryRun=All leave everything as it was."""
    maps = f"/api/v1/namespaces/{api.namespace}/configmaps"
    assert (await api.call("POST", f"{maps}?dryRun=All", {"metadata": {"name": "dry"}}))[0] == 201
    assert (await api.call("GET", f"{maps}/dry"))[0] == 404
    path, made = await configmap(api, k="1")
    patched = await api.ok("PATCH", f"{path}?dryRun=All", {"data": {"k": "2"}}, MERGE)
    assert patched["data"] == {"k": "2"}
    await api.ok("DELETE", f"{path}?dryRun=All")
    assert await api.ok("GET", path) == made


async def test_a_bound_pod_stays_until_deleted_without_grace(api: Any) -> None:
    """DELETE marks it.

    A second one with the same or more grace changes nothing, with less shortens, with none removes.
    """
    await api.pod("p")
    await api.bind("p")
    path = f"{api.pods}/p"
    marked = await api.ok("DELETE", path)
    assert marked["metadata"]["deletionGracePeriodSeconds"] == 30
    assert "deletionTimestamp" in marked["metadata"]
    for no_less in (path, f"{path}?gracePeriodSeconds=60"):
        again = await api.ok("DELETE", no_less)
        assert again["metadata"]["resourceVersion"] == marked["metadata"]["resourceVersion"]
    shorter = await api.ok("DELETE", f"{path}?gracePeriodSeconds=5")
    assert shorter["metadata"]["deletionGracePeriodSeconds"] == 5
    assert shorter["metadata"]["deletionTimestamp"] < marked["metadata"]["deletionTimestamp"]
    await api.ok("DELETE", f"{path}?gracePeriodSeconds=0")
    assert (await api.call("GET", path))[0] == 404


async def test_a_finished_pod_is_gone_at_once(api: Any) -> None:
    """A terminal phase needs no kubelet to end it."""
    await api.pod("p")
    await api.bind("p")
    await api.ok("PATCH", f"{api.pods}/p/status", {"status": {"phase": "Succeeded"}}, MERGE)
    await api.ok("DELETE", f"{api.pods}/p")
    assert (await api.call("GET", f"{api.pods}/p"))[0] == 404


async def test_a_bound_pods_finalizer_outlives_its_kubelet(api: Any) -> None:
    """After the kubelet's last delete the pod stays until its finalizer is removed."""
    await api.pod("p", finalizers=["mooring.dev/hold"])
    await api.bind("p")
    path = f"{api.pods}/p"
    await api.ok("DELETE", path)
    await api.ok("DELETE", f"{path}?gracePeriodSeconds=0")
    assert (await api.ok("GET", path))["metadata"]["deletionGracePeriodSeconds"] == 0
    await api.ok("PATCH", path, {"metadata": {"finalizers": None}}, MERGE)
    assert (await api.call("GET", path))[0] == 404


@pytest.mark.parametrize("precondition", ["uid", "resourceVersion"])
async def test_a_delete_with_a_failing_precondition_is_refused(api: Any, precondition: str) -> None:
    """The answer is 409, and the pod stays; with the right value it is deleted."""
    made = await api.pod("p")
    path = f"{api.pods}/p"
    code, answer = await api.call("DELETE", path, {"preconditions": {precondition: "1"}})
    assert (code, answer["reason"], answer["details"]["kind"]) == (409, "Conflict", "Pod")
    assert "in the precondition (1) does not match" in answer["message"]
    right = made["metadata"][precondition]
    assert (await api.call("DELETE", path, {"preconditions": {precondition: right}}))[0] == 200


async def test_an_eviction_honours_its_uid(api: Any) -> None:
    """An Eviction of a namesake is 409; the right one deletes."""
    made = await api.pod("p")
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p", "namespace": api.namespace}}
    wrong = {**eviction, "deleteOptions": {"preconditions": {"uid": "00000000-0000-0000-0000-000000000000"}}}
    code, answer = await api.call("POST", f"{api.pods}/p/eviction", wrong)
    assert (code, answer["reason"]) == (409, "Conflict")
    right = {**eviction, "deleteOptions": {"preconditions": {"uid": made["metadata"]["uid"]}}}
    code, answer = await api.call("POST", f"{api.pods}/p/eviction", right)
    assert (code, answer["status"]) == (201, "Success")
    assert (await api.call("GET", f"{api.pods}/p"))[0] == 404


async def test_delete_collection_takes_what_the_selector_names(api: Any) -> None:
    """A labelled subset is deleted, the rest stays; the answer shows the deleted objects as they were."""
    made = await api.pod("a", labels={"x": "1"})
    await api.pod("b", labels={"x": "2"})
    (gone,) = (await api.ok("DELETE", f"{api.pods}?labelSelector=x%3D1"))["items"]
    assert gone["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]
    left = await api.ok("GET", api.pods)
    assert [one["metadata"]["name"] for one in left["items"]] == ["b"]


async def test_of_eight_binders_at_once_exactly_one_wins(api: Any) -> None:
    """One gets 201, seven get 409 of kind pods/binding; the pod has only the winner's annotations."""
    for number in range(10):
        name = f"race{number}"
        await api.pod(name)
        binders = (api.bind(name, f"n{who}", annotations={"who": str(who), f"only{who}": "1"}) for who in range(8))
        answers = await asyncio.gather(*binders)
        codes = [code for code, _ in answers]
        assert sorted(codes) == [201] + [409] * 7
        kinds = {answer["details"]["kind"] for code, answer in answers if code == 409}
        assert kinds == {"pods/binding"}
        winner = codes.index(201)
        pod = await api.ok("GET", f"{api.pods}/{name}")
        assert pod["spec"]["nodeName"] == f"n{winner}"
        assert pod["metadata"]["annotations"] == {"who": str(winner), f"only{winner}": "1"}


async def test_status_and_the_rest_are_written_apart(api: Any) -> None:
    """An update of the pod leaves its status, an update of the status leaves its spec."""
    made = await api.pod("p")
    path = f"{api.pods}/p"
    changed = await api.ok("PATCH", path, {"status": {"phase": "Running"}, "metadata": {"labels": {"a": "b"}}}, MERGE)
    assert (changed["status"]["phase"], changed["metadata"]["labels"]) == ("Pending", {"a": "b"})
    changed = await api.ok("PATCH", f"{path}/status", {"status": {"phase": "Running"}, "spec": {"x": 1}}, MERGE)
    assert changed["status"]["phase"] == "Running"
    assert changed["spec"] == made["spec"]


async def test_a_name_is_generated_where_only_a_prefix_is_given(api: Any) -> None:
    """The name is generateName plus five letters, different each time."""
    maps = f"/api/v1/namespaces/{api.namespace}/configmaps"
    names = {(await api.ok("POST", maps, {"metadata": {"generateName": "g-"}}))["metadata"]["name"] for _ in range(5)}
    assert len(names) == 5
    assert all(name.startswith("g-") and len(name) == 7 for name in names)


INVALID = [
    ({"name": "Bad_Name"}, "metadata.name"),
    ({"name": "ok", "labels": {"bad key!": "v"}}, "metadata.labels"),
    ({"name": "ok", "labels": {"k": "bad value!"}}, "metadata.labels"),
    ({"name": "ok", "annotations": {"a/b/c": "v"}}, "metadata.annotations"),
]


@pytest.mark.parametrize(("metadata", "field"), INVALID)
async def test_metadata_that_breaks_a_rule_is_refused_by_field(api: Any, metadata: Any, field: str) -> None:
    """The answer is 422, with the field in its cause."""
    code, answer = await api.call("POST", f"/api/v1/namespaces/{api.namespace}/configmaps", {"metadata": metadata})
    assert (code, answer["reason"]) == (422, "Invalid")
    assert answer["details"]["causes"][0]["field"] == field


async def test_bodies_that_are_no_objects_are_bad_requests(api: Any) -> None:
    """Broken JSON, another kind, another name or namespace: 400 each, never a crash."""
    maps = f"/api/v1/namespaces/{api.namespace}/configmaps"
    async with api.session.post(api.url + maps, data=b"{", headers={"Content-Type": JSON}, ssl=api.tls) as response:
        assert response.status == 400
    bodies: list[Any] = [
        [],
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "x"}},
        {"metadata": {"name": "x", "namespace": "elsewhere"}},
    ]
    for body in bodies:
        assert (await api.call("POST", maps, body))[0] == 400, body
    path, made = await configmap(api)
    renamed = {**made, "metadata": {**made["metadata"], "name": "other"}}
    assert (await api.call("PUT", path, renamed))[0] == 400


async def test_paths_that_nothing_serves_are_404(api: Any) -> None:
    """Unknown kinds, versions, namespaces and subresources; where even the group is unknown, in plain text."""
    for path in ("/api/v1/nonsense", "/apis/apps/v9/deployments", "/apis/apps/v9", f"{api.pods}/p/nonsense"):
        code, answer = await api.call("GET", path)
        assert (code, answer["reason"]) == (404, "NotFound"), path
    for path in ("/apis/nobody.example/v1/things", "/apis/nobody.example/v1", "/apis/nobody.example", "/nonsense"):
        assert await api.call("GET", path) == (404, "404 page not found\n"), path
    code, answer = await api.call("POST", "/api/v1/namespaces/not-there/configmaps", {"metadata": {"name": "c"}})
    assert (code, answer["details"]["kind"]) == (404, "namespaces")


async def test_a_namespace_takes_its_content_with_it(dev: Any) -> None:
    """A bound pod, which stays, keeps the namespace terminating; its end ends the namespace."""
    await dev.pod("bound")
    await dev.bind("bound")
    await dev.pod("unbound")
    namespace = f"/api/v1/namespaces/{dev.namespace}"
    await dev.ok("DELETE", namespace)
    assert (await dev.ok("GET", namespace))["status"]["phase"] == "Terminating"
    assert (await dev.call("GET", f"{dev.pods}/unbound"))[0] == 404
    assert (await dev.call("POST", dev.pods, {"metadata": {"name": "new"}}))[0] == 403
    await dev.ok("DELETE", f"{dev.pods}/bound?gracePeriodSeconds=0")
    assert (await dev.call("GET", namespace))[0] == 404


async def test_a_custom_kind_is_served_once_it_is_defined(dev: Any) -> None:
    """A CustomResourceDefinition adds its kind to discovery, with strategic merge refused as everywhere."""
    names = {"plural": "rails", "singular": "rail", "kind": "Rail", "shortNames": ["rl"]}
    version = {"name": "v1", "served": True, "storage": True, "schema": {}, "subresources": {"status": {}}}
    spec = {"group": "mooring.dev", "scope": "Cluster", "names": names, "versions": [version]}
    definition = {"metadata": {"name": "rails.mooring.dev"}, "spec": spec}
    definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    assert (await dev.call("GET", "/apis/mooring.dev/v1/rails"))[0] == 404
    await dev.ok("POST", definitions, definition)
    listed = await dev.ok("GET", "/apis/mooring.dev/v1")
    assert [one["name"] for one in listed["resources"]] == ["rails", "rails/status"]
    rail = {"apiVersion": "mooring.dev/v1", "kind": "Rail", "metadata": {"name": "r0"}, "spec": {"a": [1]}}
    await dev.ok("POST", "/apis/mooring.dev/v1/rails", rail)
    (item,) = (await dev.ok("GET", "/apis/mooring.dev/v1/rails"))["items"]
    assert (item["kind"], item["spec"]) == ("Rail", {"a": [1]})
    code, _ = await dev.call("PATCH", "/apis/mooring.dev/v1/rails/r0", {"spec": {"a": [2]}}, STRATEGIC)
    assert code == 415


async def test_a_kind_that_nobody_defined_is_learnt_from_its_first_object(dev: Any) -> None:
    """The server stores any group and kind as it is."""
    path = f"/apis/k8s.cni.cncf.io/v1/namespaces/{dev.namespace}/network-attachment-definitions"
    body = {"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition", "metadata": {"name": "n"}}
    await dev.ok("POST", path, {**body, "spec": {"config": "{}"}})
    assert (await dev.ok("GET", f"{path}/n"))["spec"] == {"config": "{}"}


async def test_the_server_survives_whatever_is_posted(devserver: ApiServer, dev: Any) -> None:
    """Bodies of the wrong shape are refused or stored, never answered with an internal error."""
    shapes: list[Any] = [None, 1, "x", [], {}, {"metadata": None}, {"metadata": []}, {"metadata": {"name": 1}}]
    specs: list[Any] = [None, 1, [], {"containers": [1]}]
    labels: list[Any] = [1, [], {"a": 1}, {"a": None}]
    shapes += [{"metadata": {"name": "a"}, "spec": value} for value in specs]
    shapes += [{"metadata": {"name": "b", "labels": value}, "spec": {}} for value in labels]
    shapes += [{"metadata": {"name": "d", "annotations": {"a": 1}}, "target": {"name": 3}}]
    paths = (dev.pods, "/api/v1/nodes", "/api/v1/namespaces", f"{dev.pods}/a/binding", f"{dev.pods}/a/eviction")
    for shape in shapes:
        for path in paths:
            code, answer = await dev.call("POST", path, shape)
            assert answer.get("reason") != "InternalError", (path, shape, answer)
            assert code != 500 or path.endswith("binding"), (path, shape, answer)


async def test_a_workload_is_defaulted_and_scaled(api: Any) -> None:
    """Its rollout has the API's defaults; through `scale` only the number of pods is read and written."""
    path = f"/apis/apps/v1/namespaces/{api.namespace}/deployments"
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
    made = await api.ok("POST", path, {"metadata": {"name": "d"}, "spec": spec})
    rolling = {"maxUnavailable": "25%", "maxSurge": "25%"}
    assert (made["spec"]["replicas"], made["spec"]["strategy"]) == (
        1,
        {"type": "RollingUpdate", "rollingUpdate": rolling},
    )
    scale = await api.ok("GET", f"{path}/d/scale")
    assert (scale["kind"], scale["spec"], scale["status"]["selector"]) == ("Scale", {"replicas": 1}, "a=b")
    patched = await api.ok("PATCH", f"{path}/d/scale", {"spec": {"replicas": 5}}, "application/merge-patch+json")
    assert patched["spec"] == {"replicas": 5}
    await api.ok("PUT", f"{path}/d/scale", {**patched, "spec": {"replicas": 7}})
    assert (await api.ok("GET", f"{path}/d"))["spec"]["replicas"] == 7
