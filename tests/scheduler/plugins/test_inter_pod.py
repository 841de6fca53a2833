"""PodTopologySpread, InterPodAffinity and ImageLocality on the cases that kube-scheduler's users know."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from scheduler.kube.selecting_objects import Service
from scheduler.plugins import image_locality, inter_pod_affinity, pod_topology_spread
from tests.scheduler.reference.cluster import Cluster, pod_info_of, refusals, scores
from tests.scheduler.reference.world import Json, World

REQUIRED, PREFERRED = (
    "requiredDuringSchedulingIgnoredDuringExecution",
    "preferredDuringSchedulingIgnoredDuringExecution",
)
FOO = {"matchExpressions": [{"key": "foo", "operator": "Exists"}]}
ZONES = (("a", "1"), ("b", "1"), ("x", "2"), ("y", "2"))
SKEWED, UNLABELLED, FITS = "skewed", "unlabelled", ""
HALF = ["", "", "affinity", "affinity"]
OTHER_HALF = ["anti-affinity", "anti-affinity", "", ""]
TEAM = {"matchLabels": {"team": "1"}}
WORDS = {
    "node(s) didn't match pod topology spread constraints": SKEWED,
    "node(s) didn't match pod topology spread constraints (missing required label)": UNLABELLED,
    "node(s) didn't match pod affinity rules": "affinity",
    "node(s) didn't match pod anti-affinity rules": "anti-affinity",
    "node(s) didn't satisfy existing pods anti-affinity rules": "existing",
    "": "",
}


def node(name: str, zone: str | None = None, **fields: Any) -> Json:
    labels = {"node": name, "kubernetes.io/hostname": name} | ({"zone": zone} if zone else {})
    metadata = {"name": name, "labels": labels | fields.get("labels", {})}
    return {"metadata": metadata, "spec": fields.get("spec", {}), "status": {"images": fields.get("images", [])}}


def pod(on: str | None = None, labels: Json | None = None, namespace: str = "default", **spec: Any) -> Json:
    metadata: Json = {"name": "p", "namespace": namespace, "uid": "u"}
    metadata["labels"] = {"foo": ""} if labels is None else labels
    return {"metadata": metadata, "spec": {"containers": [{"name": "c"}], "nodeName": on} | spec}


def crowd(*homes: str) -> list[Json]:
    """Make a foo on each of these nodes: "aabyyy" is two on a, one on b and three on y."""
    return [pod(home) for names in homes for home in names]


def spread(key: str, skew: int = 1, when: str = "DoNotSchedule", **fields: Any) -> Json:
    return {"topologyKey": key, "maxSkew": skew, "whenUnsatisfiable": when, "labelSelector": FOO} | fields


def term(key: str = "zone", selector: Json | None = FOO, **fields: Any) -> Json:
    return {"topologyKey": key, "labelSelector": selector} | fields


BAR = term(selector={"matchLabels": {"bar": "1"}})


def revisions(*homes: str) -> list[Json]:
    """Make a pod of revision 1 or 2 on each node: "a1"."""
    return [pod(home[0], {"foo": "", "rev": home[1]}) for home in homes]


def affinity(*terms: Json) -> Json:
    return {"podAffinity": {REQUIRED: list(terms)}}


def anti(*terms: Json) -> Json:
    return {"podAntiAffinity": {REQUIRED: list(terms)}}


def verdicts(rule: Any, nodes: Sequence[Json], pods: Sequence[Json], incoming: Json, **world: Any) -> list[str]:
    cluster = Cluster(World(list(nodes), list(pods), **world))
    return [WORDS[text] for text in refusals(rule, cluster, incoming)]


def four() -> list[Json]:
    return [node(name, zone) for name, zone in ZONES]


def ending(assigned: Json) -> Json:
    assigned["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return assigned


@pytest.mark.parametrize(
    ("homes", "constraints", "labels", "expected"),
    [
        ("", [spread("zone")], None, [FITS] * 4),
        ("aab", [spread("zone")], {}, [SKEWED, SKEWED, FITS, FITS]),
        ("", [spread("zone")], {}, [FITS] * 4),
        ("aabxyy", [spread("zone")], None, [FITS] * 4),
        ("aaby", [spread("zone")], None, [SKEWED, SKEWED, FITS, FITS]),
        ("a", [spread("rack")], None, [UNLABELLED] * 4),
        ("aabyyy", [spread("node")], None, [SKEWED, SKEWED, FITS, SKEWED]),
        ("aabyyy", [spread("node", 2)], None, [SKEWED, FITS, FITS, SKEWED]),
        ("aabyyy", [spread("node")], {"bar": ""}, [SKEWED, FITS, FITS, SKEWED]),
        ("aabyyy", [spread("zone"), spread("node")], None, [SKEWED, SKEWED, FITS, SKEWED]),
        ("aaabyy", [spread("zone"), spread("node")], None, [SKEWED, SKEWED, FITS, SKEWED]),
        ("aabxyyy", [spread("zone"), spread("rack")], None, [UNLABELLED] * 4),
        ("aabbx", [spread("node", 2, minDomains=5)], None, [SKEWED, SKEWED, FITS, FITS]),
        ("aabbxyy", [spread("node", 2, minDomains=4)], None, [FITS] * 4),
        ("aabbxyy", [spread("node", 2, minDomains=5)], None, [SKEWED, SKEWED, FITS, SKEWED]),
        ("aax", [spread("zone", 2, minDomains=3)], None, [SKEWED, SKEWED, FITS, FITS]),
        ("aabbbb", [spread("zone", when="ScheduleAnyway")], None, [FITS] * 4),
        ("aaaa", [spread("zone", labelSelector=None)], None, [FITS] * 4),
    ],
)
def test_a_hard_constraint_keeps_the_skew(
    homes: str, constraints: list[Json], labels: Json | None, expected: list[str]
) -> None:
    """Two zones of two nodes: the matching pods there, the pod itself if it matches, and the emptiest domain decide."""
    incoming = pod(labels=labels, topologySpreadConstraints=constraints)
    assert verdicts(pod_topology_spread, four(), crowd(homes), incoming) == expected


def test_nodes_and_pods_that_do_not_count_for_spreading() -> None:
    """Nodes without a label, other namespaces, terminating pods; nodes that a policy excludes."""
    bare = [node("a", "1"), node("b"), node("x", "2"), node("y", "2")]
    incoming = pod(topologySpreadConstraints=[spread("zone")])
    assert verdicts(pod_topology_spread, bare, crowd("abxy"), incoming) == [FITS, UNLABELLED, SKEWED, SKEWED]
    elsewhere = [pod("a", namespace="n1"), pod("a", namespace="n2"), *crowd("xy")]
    assert verdicts(pod_topology_spread, four(), elsewhere, incoming) == [FITS, FITS, SKEWED, SKEWED]
    by_node = pod(topologySpreadConstraints=[spread("node")])
    assert verdicts(pod_topology_spread, four()[:2], [ending(pod("a")), pod("b")], by_node) == [FITS, SKEWED]


def test_the_policies_say_whether_excluded_nodes_count() -> None:
    """By default nodes that the pod's node affinity excludes do not count, and tainted ones do."""
    picky = {"disk": "ssd"}
    nodes = [node("a", labels={"disk": "ssd"}), node("b"), node("y", labels={"disk": "ssd"})]
    assigned = crowd("aayyy")
    honored = pod(topologySpreadConstraints=[spread("node")], nodeSelector=picky)
    assert verdicts(pod_topology_spread, nodes, assigned, honored) == [FITS, FITS, SKEWED]
    ignored = pod(topologySpreadConstraints=[spread("node", nodeAffinityPolicy="Ignore")], nodeSelector=picky)
    assert verdicts(pod_topology_spread, nodes, assigned, ignored) == [SKEWED, FITS, SKEWED]
    taint = {"taints": [{"key": "k", "effect": "NoSchedule"}]}
    nodes = [node("a"), node("b", spec=taint), node("y")]
    ignored = pod(topologySpreadConstraints=[spread("node")])
    assert verdicts(pod_topology_spread, nodes, assigned, ignored) == [SKEWED, FITS, SKEWED]
    honored = pod(topologySpreadConstraints=[spread("node", nodeTaintsPolicy="Honor")])
    assert verdicts(pod_topology_spread, nodes, assigned, honored) == [FITS, FITS, SKEWED]


def test_match_label_keys_spread_each_revision_by_itself() -> None:
    """Pods of another revision do not count; a selector that the API server has merged stays as it is."""
    assigned, nodes, own = revisions("a1", "a1", "b2"), [node("a"), node("b")], {"foo": "", "rev": "2"}
    incoming = pod(labels=own, topologySpreadConstraints=[spread("node", matchLabelKeys=["rev", "absent"])])
    assert verdicts(pod_topology_spread, nodes, assigned, incoming) == [FITS, SKEWED]
    merged = {"matchExpressions": [*FOO["matchExpressions"], {"key": "rev", "operator": "In", "values": ["1"]}]}
    constraint = spread("node", labelSelector=merged, matchLabelKeys=["rev"])
    incoming = pod(labels=own, topologySpreadConstraints=[constraint])
    assert verdicts(pod_topology_spread, nodes, assigned, incoming) == [SKEWED, FITS]


@pytest.mark.parametrize(
    ("homes", "constraints", "candidates", "expected"),
    [
        ("", [spread("kubernetes.io/hostname", when="ScheduleAnyway")], "ab", [100, 100]),
        ("aabyyy", [spread("kubernetes.io/hostname", when="ScheduleAnyway")], "abxy", [20, 60, 100, 0]),
        ("aabyyy", [spread("kubernetes.io/hostname", 2, "ScheduleAnyway")], "abxy", [33, 66, 100, 16]),
        ("aabyyy", [spread("kubernetes.io/hostname", when="ScheduleAnyway")], "y", [100]),
        ("aaby", [spread("zone", when="ScheduleAnyway")], "abx", [25, 25, 100]),
        ("aab", [spread("rack", when="ScheduleAnyway")], "abx", [0, 0, 0]),
        ("aab", [spread("zone")], "abx", [0, 0, 0]),
    ],
)
def test_a_soft_constraint_prefers_the_emptier_domain(
    homes: str, constraints: list[Json], candidates: str, expected: list[int]
) -> None:
    """Numbers of pods, weighted by the number of domains; nodes without the label get nothing."""
    cluster = Cluster(World(four(), crowd(homes)))
    nodes = [one for one in cluster.world.nodes if one["metadata"]["name"] in candidates]
    incoming = pod(topologySpreadConstraints=constraints)
    assert scores(pod_topology_spread, cluster, incoming, nodes) == expected


def test_a_pod_that_a_service_selects_is_spread_by_default() -> None:
    """Over hosts and zones, and only as a preference; not a pod that nothing selects, or with its own constraints."""
    cluster = Cluster(World(four(), crowd("aab")))
    incoming = pod(labels={"foo": ""})
    assert scores(pod_topology_spread, cluster, incoming, cluster.world.nodes) == [0] * 4
    metadata = {"name": "s", "namespace": "default"}
    service = msgspec.convert({"metadata": metadata, "spec": {"selector": {"foo": ""}}}, Service)
    cluster.pod_counts.default_selectors.put_service(service)
    assert refusals(pod_topology_spread, cluster, incoming) == [""] * 4
    found = scores(pod_topology_spread, cluster, incoming, cluster.world.nodes)
    assert found[0] < found[1] < found[2] == found[3] == 100
    own = pod(topologySpreadConstraints=[spread("zone")])
    assert scores(pod_topology_spread, cluster, own, cluster.world.nodes) == [0] * 4
    cluster.pod_counts.default_selectors.remove_service("default", "s")
    assert scores(pod_topology_spread, cluster, incoming, cluster.world.nodes) == [0] * 4


@pytest.mark.parametrize(
    ("assigned", "incoming", "expected"),
    [
        ([pod("a")], pod(labels={}, affinity=affinity(term())), HALF),
        ([pod("a")], pod(labels={}, affinity=affinity(term("rack"))), ["affinity"] * 4),
        ([pod("a", namespace="n1")], pod(labels={}, affinity=affinity(term())), ["affinity"] * 4),
        ([pod("a", namespace="n1")], pod(labels={}, affinity=affinity(term(namespaces=["n1"]))), HALF),
        ([pod("a", namespace="n1")], pod(labels={}, affinity=affinity(term(namespaceSelector={}))), HALF),
        (
            [pod("a", namespace="n1"), pod("x", namespace="n2")],
            pod(labels={}, affinity=affinity(term(namespaceSelector=TEAM))),
            HALF,
        ),
        ([], pod(affinity=affinity(term())), [""] * 4),
        ([], pod(affinity=affinity(term("rack"))), ["affinity"] * 4),
        ([], pod(labels={}, affinity=affinity(term())), ["affinity"] * 4),
        ([], pod(affinity=affinity(term(), BAR)), ["affinity"] * 4),
        ([pod("a")], pod(affinity=affinity(term(), term("node"))), ["", "affinity", "affinity", "affinity"]),
        ([pod("a"), pod("a", {"bar": "1"})], pod(labels={}, affinity=affinity(term(), BAR)), ["affinity"] * 4),
        ([pod("a", {"foo": "", "bar": "1"})], pod(labels={}, affinity=affinity(term(), BAR)), HALF),
        ([pod("a")], pod(labels={}, affinity=anti(term())), OTHER_HALF),
        ([pod("a")], pod(labels={}, affinity=anti(term("node"))), ["anti-affinity", "", "", ""]),
        ([pod("a")], pod(labels={}, affinity=anti(term("rack"))), [""] * 4),
        ([pod("a")], pod(labels={}, affinity=anti(term(selector=None))), [""] * 4),
        ([ending(pod("a"))], pod(labels={}, affinity=anti(term("node"))), ["anti-affinity", "", "", ""]),
        ([pod("a", {}, affinity=anti(term()))], pod(), ["existing", "existing", "", ""]),
        ([pod("a", {}, affinity=anti(term()))], pod(namespace="n1"), [""] * 4),
        ([pod("a", {}, affinity=anti(term(namespaceSelector=TEAM)))], pod(namespace="n1"), ["existing"] * 2 + ["", ""]),
        ([pod("a", {}, affinity=anti(term()))], pod(labels={}), [""] * 4),
        (
            [pod("x", {}, affinity=anti(term())), pod("a")],
            pod(affinity=anti(term("node"))),
            ["anti-affinity", "", "existing", "existing"],
        ),
        (
            revisions("a1", "x2"),
            pod(labels={"rev": "2"}, affinity=anti(term(matchLabelKeys=["rev"]))),
            ["", "", "anti-affinity", "anti-affinity"],
        ),
        (revisions("a1", "x2"), pod(labels={"rev": "2"}, affinity=anti(term(mismatchLabelKeys=["rev"]))), OTHER_HALF),
    ],
)
def test_required_terms_of_both_sides_hold(assigned: list[Json], incoming: Json, expected: list[str]) -> None:
    """The pod's own terms and the assigned pods' anti-affinity; the first pod of a group with affinity may start."""
    namespaces = {"default": {}, "n1": {"team": "1"}, "n2": {"team": "2"}}
    assert verdicts(inter_pod_affinity, four(), assigned, incoming, namespaces=namespaces) == expected


@pytest.mark.parametrize("home", ["a", "r"])
def test_the_exception_for_the_first_pod_of_a_group_applies_once(home: str) -> None:
    """One pod of it in the domain of one of two labels is enough, even if no node can satisfy both terms."""
    nodes = [node("a", "1"), node("b", "2", labels={"rack": "2"}), node("r", labels={"rack": "1"})]
    incoming = pod(affinity=affinity(term(), term("rack")))
    assert verdicts(inter_pod_affinity, nodes, [], incoming) == ["affinity", "", "affinity"]
    assert verdicts(inter_pod_affinity, nodes, [pod(home)], incoming) == ["affinity"] * 3


def preferred(kind: str, weight: int, *, key: str = "zone") -> Json:
    return {kind: {PREFERRED: [{"weight": weight, "podAffinityTerm": term(key)}]}}


@pytest.mark.parametrize(
    ("assigned", "incoming", "expected"),
    [
        ([pod("a")], pod(), [0, 0, 0, 0]),
        ([pod("a")], pod(affinity=preferred("podAffinity", 5)), [100, 100, 0, 0]),
        ([pod("a")], pod(affinity=preferred("podAntiAffinity", 5)), [0, 0, 100, 100]),
        ([pod("a"), pod("a"), pod("x")], pod(affinity=preferred("podAffinity", 5, key="node")), [100, 0, 50, 0]),
        ([pod("a", {}, affinity=preferred("podAffinity", 7))], pod(), [100, 100, 0, 0]),
        ([pod("a", {}, affinity=preferred("podAntiAffinity", 7))], pod(), [0, 0, 100, 100]),
        ([pod("a", {}, affinity=affinity(term()))], pod(), [100, 100, 0, 0]),
        (
            [pod("a", {}, affinity=affinity(term())), pod("x", {}, affinity=preferred("podAffinity", 4))],
            pod(),
            [0, 0, 100, 100],
        ),
        ([pod("a", {}, affinity=preferred("podAffinity", 7))], pod(labels={}), [0, 0, 0, 0]),
        ([pod(home) for home in "abxy"], pod(affinity=preferred("podAffinity", 5)), [0, 0, 0, 0]),
    ],
)
def test_preferred_terms_of_both_sides_score(assigned: list[Json], incoming: Json, expected: list[int]) -> None:
    """Weights add up in each domain, an assigned pod's required affinity as 1; then 100 is the best and 0 the worst."""
    cluster = Cluster(World(four(), assigned))
    assert scores(inter_pod_affinity, cluster, incoming, cluster.world.nodes) == expected


def image(name: str, megabytes: int) -> Json:
    return {"names": [name], "sizeBytes": megabytes * 1024 * 1024}


@pytest.mark.parametrize(
    ("there", "wanted", "expected"),
    [
        ([[], []], ["r/40"], [0, 0]),
        ([[image("r/40:latest", 40)], [image("r/250:latest", 250)]], ["r/40", "r/250"], [0, 5]),
        ([[image("r/300:latest", 300)], [image("r/250:latest", 250)]], ["r/300:latest", "r/250:1"], [6, 0]),
        ([[image("r/4000:latest", 4000)], []], ["r/4000"], [100, 0]),
        ([[image("r/4000:latest", 4000)]] * 2, ["r/4000", "r/4000", "r/10"], [100, 100]),
        ([[image("r:80/i:latest", 1000)]] * 2, ["r:80/i"], [100, 100]),
    ],
)
def test_nodes_that_have_the_images_are_preferred(
    there: list[list[Json]], wanted: list[str], expected: list[int]
) -> None:
    """By size, scaled by the share of nodes that have it: below 23 MiB it is nothing, 1000 MiB a container are all."""
    nodes = [node(f"n{number}", images=images) for number, images in enumerate(there)]
    cluster = Cluster(World(nodes))
    containers = [{"name": f"c{number}", "image": name} for number, name in enumerate(wanted)]
    pod_info = pod_info_of(pod(containers=containers[1:], initContainers=containers[:1]))
    scorer = image_locality.pre_filter(pod_info, cluster.nodes)
    assert scorer is not None
    assert scorer(cluster.rows(nodes)).tolist() == expected
