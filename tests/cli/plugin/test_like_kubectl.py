"""What `kubectl mooring` has in common with kubectl: names, selectors, outputs, errors, impersonation, versions."""

import json

import pytest

from mooring import names
from tests.cli.plugin.cluster import Json, Served, bound, node, pf, pod


async def fill(served: Served) -> None:
    """Make three nodes, and a pod with VFs on each of the first two."""
    for index in (1, 2, 10):
        await served.add_node(node(f"n{index}", (pf(0),)))
    await served.add_pod(bound("a", "n1", (pf(0), 0, 5000), labels={"app": "x"}))
    await served.add_pod(bound("b", "n2", (pf(0), 0, 900), (pf(0), 1, 0)))


def column(out: str, index: int) -> list[str]:
    return [line.split()[index] for line in out.splitlines()]


@pytest.mark.parametrize(
    ("argv", "shown"),
    [
        (("nodes", "n10", "n1"), ["NODE", "n1", "n10"]),
        (("nodes", "node/n2"), ["NODE", "n2"]),
        (("nodes", "n2", "--no-headers"), ["n2"]),
        (("nodes", "-l", "kubernetes.io/hostname in (n1, n2)"), ["NODE", "n1", "n2"]),
        (("pods", "b", "-o", "name"), ["pod/b"]),
        (("pods", "pod/a"), ["NAME", "a"]),
        (("pods", "-l", "app=x"), ["NAME", "a"]),
        (("pods", "-l", "app!=x", "--no-headers"), ["b", "b"]),
        (("pods", "-A"), ["NAMESPACE", "default", "default", "default"]),
        (("nodes", "-o", "name"), ["node/n1", "node/n10", "node/n2"]),
        (("nodes", "--sort-by", "node", "--no-headers"), ["n1", "n2", "n10"]),
        (("nodes", "--sort-by", ".node", "--no-headers"), ["n1", "n2", "n10"]),
        (("nodes", "--sort-by", ".metadata.name", "--no-headers"), ["n1", "n2", "n10"]),
        (("pods", "-o", "jsonpath={.items[0].metadata.name}"), ["a"]),
        (("nodes", "--sort-by=LEFT-MBPS", "--no-headers"), ["n1", "n2", "n10"]),
        (("nodes", "--sort-by={.pfs[0].vfs.free}", "-o", "name"), ["node/n2", "node/n1", "node/n10"]),
        (("pods", "--sort-by=min-mbps", "-o", "name"), ["pod/b", "pod/a"]),
        (("pods", "-o", "jsonpath={range .items[*]}{.name} {.node}{'\\n'}{end}"), ["a", "b"]),
        (("pods", "-o", "jsonpath={.items[?(@.node=='n2')].name}"), ["b"]),
    ],
)
async def test_objects_are_chosen_ordered_and_printed_as_by_kubectl(
    served: Served, argv: tuple[str, ...], shown: list[str]
) -> None:
    """The first column of each line."""
    await fill(served)
    status, out, err = await served.run(*argv)
    assert (status, err) == (0, "")
    assert column(out, 0) == shown


async def test_names_that_do_not_exist_are_reported_and_the_others_shown(served: Served) -> None:
    """With the API server's own sentence, and status 1."""
    await fill(served)
    status, out, err = await served.run("pods", "a", "x", "y")
    assert (status, column(out, 0)) == (1, ["NAME", "a"])
    assert err == 'Error from server (NotFound): pods "x" not found\nError from server (NotFound): pods "y" not found\n'
    for argv, error in (
        (("nodes", "x"), 'nodes "x" not found'),
        (("groups", "x"), 'groups "x" not found'),
        (("explain", "x"), 'pods "x" not found'),
        (("explain", "group/x"), 'groups "x" not found'),
        (("explain", "job/x"), 'jobs.batch "x" not found'),
    ):
        assert await served.run(*argv) == (1, "", f"Error from server (NotFound): {error}\n")


async def test_a_pod_that_is_named_is_shown_even_if_it_requests_no_vfs(served: Served) -> None:
    """Without its name it is left out."""
    await served.add_pod(pod("plain"))
    _, out, _ = await served.run("pods", "plain", "--no-headers")
    assert out.split()[:3] == ["plain", "Pending", "-"]
    _, out, _ = await served.run("pods")
    assert out == "no pods with interfaces\n"


async def test_an_order_or_template_that_does_not_fit_is_an_error(served: Served) -> None:
    """It names what there is."""
    await fill(served)
    _, _, err = await served.run("nodes", "--sort-by", "speed")
    assert err.startswith("error: --sort-by 'speed': must be .FIELD or one of NODE, STATE, PF, ")
    _, _, err = await served.run("nodes", "--sort-by", ".speed")
    assert err == "error: couldn't find any field with path '.speed' in the list of objects\n"
    _, out, err = await served.run("nodes", "-o", "jsonpath={.items[")
    assert (out, err) == ("", "error: error parsing jsonpath {.items[, unclosed action\n")
    _, _, err = await served.run("nodes", "-o", "jsonpath={.items[7]}")
    assert err == "error: array index out of bounds: index 7, length 3\n"


async def test_a_server_that_cannot_be_reached_is_reported_as_by_kubectl(served: Served) -> None:
    """`version` shows its own version first."""
    config = json.loads(served.kubeconfig.read_text())
    config["clusters"][0]["cluster"] = {"server": "http://127.0.0.1:1"}
    served.kubeconfig.write_text(json.dumps(config))
    status, out, err = await served.run("nodes")
    assert (status, out) == (1, "")
    assert err.startswith("Unable to connect to the server: GET /api/v1/nodes: ")
    status, out, err = await served.run("version")
    assert (status, out) == (1, "Client Version: 0.2.0\n")
    assert err.startswith("Unable to connect to the server: GET /version: ")


async def test_version_shows_the_programs_of_the_cluster(served: Served) -> None:
    """`--client` asks no server, and has other outputs too."""
    await fill(served)
    old = {"mooring-cni": "0.0.9"}
    await served.add_node(node("n3", (pf(0),), programs=old))
    labels = {"app.kubernetes.io/name": "mooring-scheduler", "app.kubernetes.io/version": "0.2.0"}
    await served.add_pod(pod("scheduler", labels=labels))
    status, out, _ = await served.run("version")
    lines = out.splitlines()
    assert (status, lines[0], lines[2:]) == (
        0,
        "Client Version: 0.2.0",
        [
            "Scheduler Version: 0.2.0",
            "mooring-advertiser Version: 0.2.0 (3 nodes)",
            "mooring-cni Version: 0.0.9 (1 node)",
            "mooring-cni Version: 0.2.0 (3 nodes)",
            "mooring-cri-shim Version: 0.2.0 (3 nodes)",
        ],
    )
    assert lines[1].startswith("Server Version: v")
    assert await served.run("version", "--client") == (0, "Client Version: 0.2.0\n", "")
    assert await served.run("version", "--client", "-o", "jsonpath={.client}") == (0, "0.2.0", "")


async def job_with_pods(served: Served, *pods: Json) -> None:
    """Make a Job that owns these pods."""
    template = {"spec": {"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Never"}}
    job = await served.post(
        "/apis/batch/v1/namespaces/default/jobs", {"metadata": {"name": "train"}, "spec": {"template": template}}
    )
    owner = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": "train",
        "uid": job["metadata"]["uid"],
        "controller": True,
    }
    for one in pods:
        one["metadata"]["ownerReferences"] = [owner]
        await served.add_pod(one)


async def test_explain_of_a_job_is_about_the_group_of_its_pods(served: Served) -> None:
    """The pods of one controller form a group."""
    await served.add_node(node("n1", (pf(0),)))
    await served.lead()
    group = {names.GROUP: '{"min":2}'}
    await job_with_pods(served, *(pod(f"train-{index}", "[{}]", annotations=group) for index in range(2)))
    status, out, err = await served.run("explain", "job/train", "-o", "json")
    (item,) = json.loads(out)["items"]
    assert (status, err, item["group"]["waiting"]) == (0, "", 2)
    assert [one["name"] for one in item["group"]["members"]] == ["train-0", "train-1"]


async def test_explain_of_a_job_without_a_group_is_about_its_first_pod_that_waits(served: Served) -> None:
    """The others are counted."""
    await served.add_node(node("n1", (pf(0),)))
    await served.lead()
    await job_with_pods(served, bound("train-0", "n1", (pf(0), 0, 0)), pod("train-1", "[{}]"), pod("train-2", "[{}]"))
    status, out, _ = await served.run("explain", "job/train")
    assert status == 0
    assert [line.split(maxsplit=1) for line in out.splitlines()[:2]] == [
        ["job", "train"],
        ["pods", "3, 2 waiting; one of them:"],
    ]
    assert "default/train-1" in out
    await served.post(
        "/apis/batch/v1/namespaces/default/jobs",
        {"metadata": {"name": "new"}, "spec": {"template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}}},
    )
    _, _, err = await served.run("explain", "job/new")
    assert err == "error: job 'new': has no pods yet\n"


async def test_impersonation_asks_as_another_user(guarded: Served) -> None:
    """A user without rights; a group that has all."""
    await fill(guarded)
    status, _, err = await guarded.run("pods", "--as", "jane")
    assert (status, err) == (
        1,
        'Error from server (Forbidden): pods is forbidden: User "jane" cannot list resource "pods" in API group "" '
        'in the namespace "default"\n',
    )
    status, out, _ = await guarded.run("pods", "--as", "jane", "--as-group", "system:masters", "-o", "name")
    assert (status, out) == (0, "pod/a\npod/b\n")
    _, _, err = await guarded.run("pods", "--as-group", "system:masters")
    assert err.startswith("error: --as-group and --as-uid need --as")


async def test_groups_are_chosen_by_the_labels_of_their_pods(served: Served) -> None:
    """A group whose pods have the labels is whole: its other members count too."""
    for name in ("one", "two"):
        for index in range(2):
            labels = {"app": name} if index == 0 else {}
            group = {names.GROUP: json.dumps({"name": name, "min": 2})}
            await served.add_pod(pod(f"{name}-{index}", "[{}]", annotations=group, labels=labels))
    _, out, _ = await served.run("groups", "-l", "app=two", "--no-headers")
    assert out.split()[:5] == ["two", "Waiting", "2", "0", "2"]
    _, out, _ = await served.run("groups", "one", "two", "-o", "name")
    assert out == "group/one\ngroup/two\n"
