"""The Helm chart renders to what kustomize applies, object by object; its values change what they say."""

import json
import os
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from release.cache import helm
from tests.manifests.charts import CHART, SWITCHES, Objects, kustomized, merged, plain, refusal, rendered
from tests.manifests.rendering import ROOT

pytestmark = [pytest.mark.helm, pytest.mark.recent_kubectl]
SCHEDULER, ADVERTISER = ("Deployment", "mooring-scheduler"), ("DaemonSet", "mooring-advertiser")
# Each component; those that touch the same object together; all.
CHOICES = [
    (),
    *((name,) for name in SWITCHES if name != "extender-tls"),
    ("extender", "extender-tls"),
    ("extender", "signatures"),
    ("extender", "extender-tls", "signatures"),
    ("gpus", "network-status"),
    tuple(SWITCHES),
]


def _pod(objects: Objects, name: tuple[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = objects[name]["spec"]["template"]["spec"]
    return found


@pytest.mark.parametrize("components", CHOICES, ids=lambda chosen: "+".join(chosen) or "base")
def test_helm_renders_what_kustomize_applies(components: tuple[str, ...]) -> None:
    """Equal after parsing, every field of every object; only the label that says who manages it differs."""
    expected, made = kustomized(components), rendered(merged(components))
    assert made.keys() == expected.keys()
    for name, document in expected.items():
        assert made[name] == document


def test_every_component_is_compared() -> None:
    """A new component of the manifests gets a value of the chart, and comes into the comparison."""
    assert set(SWITCHES) == {path.name for path in (ROOT / "components").iterdir()}


def test_the_chart_has_the_version_of_the_programs() -> None:
    """Both of its versions: it is released with them."""
    version = tomllib.loads((ROOT.parent / "pyproject.toml").read_text())["project"]["version"]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (version, version)


def test_images_offer_and_flags_are_those_of_an_overlay() -> None:
    """As an overlay says them, by kustomize's own means."""
    images = [
        {"name": f"mooring-{one}", "newName": f"registry.example/mooring-{one}", "newTag": "2"} for one in _PROGRAMS
    ]
    flag = [{"op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": "--evict-lost-vfs=60"}]
    made = {"name": "mooring-offer", "namespace": "mooring-node", "files": ["offer.yaml"]}
    more = {
        "images": images,
        "configMapGenerator": [{**made, "options": {"disableNameSuffixHash": True}}],
        "patches": [{"patch": yaml.safe_dump(flag), "target": {"kind": "Deployment"}}],
    }
    offer = "v: 1\npfs:\n  - network: rail0\n"
    values = {
        "image": {"registry": "registry.example", "tag": "2"},
        "scheduler": {"extraArgs": ["--evict-lost-vfs=60"]},
        "offer": offer,
    }
    assert rendered(values) == kustomized((), more, offer_yaml=offer)
    as_fields = rendered({**values, "offer": yaml.safe_load(offer)})["ConfigMap", "mooring-offer"]
    assert yaml.safe_load(as_fields["data"]["offer.yaml"]) == yaml.safe_load(offer)


_PROGRAMS = ("scheduler", "advertiser")


@pytest.mark.parametrize(
    "policy", ["annotations", "assignment", "bindings", "groups", "interfaces", "inventory", "kinds"]
)
def test_a_policy_that_is_left_out_goes_with_its_binding(policy: str) -> None:
    """As an overlay deletes both; all else stays."""
    kinds = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
    gone = {(kind, f"mooring-{policy}") for kind in kinds}
    made = rendered({"guard": {"policies": {policy: False}}})
    assert made == {name: one for name, one in plain().items() if name not in gone}


def test_what_is_switched_off_goes_alone() -> None:
    """The guard with its parameter and its role, the flow schemas, the namespace, init."""
    guard = {name for name, one in plain().items() if one["metadata"]["labels"].get(_COMPONENT) == "guard"}
    assert len(guard) == 17
    assert plain().keys() - rendered({"guard": {"enabled": False}}).keys() == guard
    flows = plain().keys() - rendered({"flowSchemas": {"enabled": False}}).keys()
    assert {kind for kind, _ in flows} == {"FlowSchema"}
    namespaces = {("Namespace", "mooring-system"), ("Namespace", "mooring-node")}
    assert plain().keys() - rendered({"createNamespace": False}).keys() == namespaces
    assert "initContainers" not in _pod(rendered({"advertiser": {"init": {"enabled": False}}}), ADVERTISER)


_COMPONENT = "app.kubernetes.io/component"


def test_the_releases_namespace_is_everywhere() -> None:
    """Also in the accounts of roles, flow schemas and rules of the admission policies."""
    here, there = (
        {json.dumps(document) for document in objects.values()}
        for objects in (plain(), rendered(namespace="elsewhere"))
    )
    assert sum(document.count("mooring-system") for document in here) >= 17
    assert there == {document.replace("mooring-system", "elsewhere") for document in here}


def test_everything_can_be_in_one_namespace() -> None:
    """As with another namespace for the nodes' pods, but that there is one, into which Pod Security lets them all."""
    one, two = rendered({"nodeNamespace": ""}), rendered({"nodeNamespace": "elsewhere"})
    (namespace,) = (document for (kind, _), document in one.items() if kind == "Namespace")
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "privileged"
    as_one = {name: json.dumps(document).replace("elsewhere", "mooring-system") for name, document in two.items()}
    assert {name: json.dumps(document) for name, document in one.items() if name[0] != "Namespace"} == {
        name: text for name, text in as_one.items() if name[0] != "Namespace"
    }


def test_values_change_what_they_name() -> None:
    """Each once: what a user of a chart looks for first."""
    values = {
        "image": {"pullPolicy": "Always", "pullSecrets": [{"name": "password"}]},
        "scheduler": {
            "replicas": 3,
            "image": {"digest": f"sha256:{'a' * 64}"},
            "nodeSelector": {"pool": "infra"},
            "tolerations": [],
            "podAnnotations": {"a": "b"},
        },
        "advertiser": {
            "image": {"repository": "elsewhere/advertiser", "tag": "3"},
            "seLinuxOptions": {"type": "spc_t"},
            "nodeSelector": {"nic": "mlx5"},
            "extraArgs": ["--proc=/host"],
        },
        "guard": {"inventoryWriters": ["a", "b"]},
        "extender": {"enabled": True, "allowedCidrs": ["10.0.0.1/32", "10.0.0.2/32"]},
        "signatures": {"enabled": True, "secretName": "key"},
    }
    made = rendered(values)
    scheduler, advertiser = _pod(made, SCHEDULER), _pod(made, ADVERTISER)
    assert made[SCHEDULER]["spec"]["replicas"] == 3
    assert made[SCHEDULER]["spec"]["template"]["metadata"]["annotations"] == {"a": "b"}
    assert (scheduler["nodeSelector"], scheduler["tolerations"]) == ({"pool": "infra"}, [])
    assert scheduler["containers"][0]["image"] == f"mooring-scheduler@sha256:{'a' * 64}"
    assert scheduler["volumes"][0]["secret"]["secretName"] == "key"
    for pod in (scheduler, advertiser):
        assert pod["imagePullSecrets"] == [{"name": "password"}]
        assert {one["imagePullPolicy"] for one in pod["containers"]} == {"Always"}
    (init,), (serve,) = advertiser["initContainers"], advertiser["containers"]
    assert advertiser["securityContext"]["seLinuxOptions"] == {"type": "spc_t"}
    assert {init["image"], serve["image"]} == {"elsewhere/advertiser:3"}
    assert serve["args"][-1] == "--proc=/host"
    assert advertiser["nodeSelector"]["nic"] == "mlx5"
    assert made["ConfigMap", "mooring-guard"]["data"]["inventoryWriters"] == "a b"
    sources = made["NetworkPolicy", "mooring-extender"]["spec"]["ingress"][1]["from"]
    assert sources == [{"ipBlock": {"cidr": "10.0.0.1/32"}}, {"ipBlock": {"cidr": "10.0.0.2/32"}}]


@pytest.mark.parametrize(
    ("values", "kubernetes", "why"),
    [
        ({"extender": {"tls": {"enabled": True}}}, "1.36.0", "'extender.enabled' is false"),
        ({"limits": {"enabled": True}}, "1.35.2", "needs 1.36 or newer"),
        ({}, "1.31.4", "kubeVersion: >=1.32.0"),
        ({"extender": {"allowedCidrs": []}}, "1.36.0", "allowedCidrs"),
        ({"guard": {"polices": {"kinds": False}}}, "1.36.0", "polices"),
        ({"scheduler": {"replicas": "2"}}, "1.36.0", "replicas"),
    ],
)
def test_values_that_cannot_be_meant_are_refused(values: dict[str, Any], kubernetes: str, why: str) -> None:
    """Misspelled names, contradictions, a cluster that is too old; no address would let everybody in."""
    assert why in refusal(values, kubernetes)


def test_helm_finds_nothing_wrong_with_the_chart(tmp_path: Path) -> None:
    """`helm lint`, also with every component."""
    (tmp_path / "all.yaml").write_text(yaml.safe_dump(merged(SWITCHES)))
    flags = ["--strict", "--kube-version", "1.36.0", "--values", str(tmp_path / "all.yaml")]
    command = [str(helm(os.environ)), "lint", str(CHART), *flags]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=180)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_schema_knows_every_value_and_no_other() -> None:
    """A value without an entry could be given only to be refused."""
    schema = json.loads((CHART / "values.schema.json").read_text())
    known = set(_names(schema["properties"])) - {"global"}
    assert known == set(_keys(yaml.safe_load((CHART / "values.yaml").read_text()), schema["properties"]))


def _names(properties: dict[str, Any], before: str = "") -> list[str]:
    found = []
    for name, one in properties.items():
        found += [f"{before}{name}", *_names(one.get("properties", {}), f"{before}{name}.")]
    return found


def _keys(values: dict[str, Any], properties: dict[str, Any], before: str = "") -> list[str]:
    found = []
    for name, value in values.items():
        inner = properties.get(name, {}).get("properties")
        found += [f"{before}{name}", *(_keys(value, inner, f"{before}{name}.") if inner else ())]
    return found
