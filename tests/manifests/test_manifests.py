"""The contents of the manifests: valid, consistent in themselves, and understood by the programs."""

import json
import os
import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from advertiser.__main__ import COMMANDS as ADVERTISER_COMMANDS
from advertiser.__main__ import Config as AdvertiserConfig
from cni.spec.conf import read_conf
from cni.spec.skel import read_call
from mooring.program.config import load
from mooring.records import extract, handed_offer
from mooring.records.run_folder import READY
from scheduler.__main__ import Config as SchedulerConfig
from tests.manifests.accounts import NAMESPACE, NODE_NAMESPACE
from tests.manifests.rendering import ROOT, Document, built, kustomizations, of_kind

pytestmark = pytest.mark.recent_kubectl
# The oldest Kubernetes that the guard works with (a token names its pod's node), and the newest with known schemas.
OLDEST, NEWEST = "1.32", kubernetes_validate.latest_version()
_OPERATOR = "monitoring.coreos.com/"
_WORKLOADS = ("Deployment", "DaemonSet")


@pytest.fixture(params=kustomizations())
def objects(request: pytest.FixtureRequest) -> tuple[Document, ...]:
    """Build the base, and each overlay."""
    return built(request.param)


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
def test_every_object_is_as_kubernetes_schemas_want_it(objects: tuple[Document, ...], version: str) -> None:
    """Strictly: no field that they do not know; the operator's own kinds have no schema there."""
    checked = [one for one in objects if not one["apiVersion"].startswith(_OPERATOR)]
    for document in checked:
        kubernetes_validate.validate(document, version, strict=True)
    assert len(checked) > 20


def test_labels_are_the_recommended_ones(objects: tuple[Document, ...]) -> None:
    """Name and part-of everywhere, and where there is a version it is the distribution's."""
    version = tomllib.loads((ROOT.parent / "pyproject.toml").read_text())["project"]["version"]
    for document in objects:
        labels = document["metadata"]["labels"]
        assert labels["app.kubernetes.io/name"].startswith("mooring")
        assert labels["app.kubernetes.io/part-of"] == "mooring"
        assert labels.get("app.kubernetes.io/version", version) == version
    images = {container["image"] for pod in _pods(objects) for container in _containers(pod)}
    programs = {"scheduler", "advertiser"} | ({"node-installer"} if _installers(objects) else set())
    assert images == {f"mooring-{program}:{version}" for program in programs}


def _installers(objects: tuple[Document, ...]) -> list[Document]:
    return [one for one in of_kind(objects, "DaemonSet") if one["metadata"]["name"] == "mooring-node-installer"]


def test_who_selects_pods_selects_those_of_one_workload(objects: tuple[Document, ...]) -> None:
    """Workloads their own, Services and monitors by a port that the pods name."""
    templates = [one["spec"]["template"] for one in of_kind(objects, *_WORKLOADS)]
    for document in of_kind(objects, *_WORKLOADS, "Service", "PodDisruptionBudget", "PodMonitor"):
        selector = document["spec"]["selector"]
        wanted = selector.get("matchLabels", selector)
        (selected,) = [one for one in templates if wanted.items() <= one["metadata"]["labels"].items()]
        named = {port["name"] for container in _containers(selected["spec"]) for port in container.get("ports", ())}
        assert {port for port in _ports(document) if isinstance(port, str)} <= named


def _ports(document: Document) -> Iterator[Any]:
    yield from (port["targetPort"] for port in document["spec"].get("ports", ()))
    yield from (endpoint["port"] for endpoint in document["spec"].get("podMetricsEndpoints", ()))


def test_whoever_is_named_exists(objects: tuple[Document, ...]) -> None:
    """Roles and accounts of bindings, the accounts of pods and flows, the accounts that the guard's rules spell out."""
    accounts = {one["metadata"]["name"]: one["metadata"]["namespace"] for one in of_kind(objects, "ServiceAccount")}
    namespaces = {one["metadata"]["name"] for one in of_kind(objects, "Namespace")}
    assert {one["metadata"]["namespace"] for one in objects if "namespace" in one["metadata"]} == namespaces
    assert namespaces == {NAMESPACE, NODE_NAMESPACE}
    for binding in of_kind(objects, "RoleBinding", "ClusterRoleBinding"):
        role = binding["roleRef"]
        assert role["name"] in {one["metadata"]["name"] for one in of_kind(objects, role["kind"])}
        own = {(one["name"], one["namespace"]) for one in binding["subjects"] if one["kind"] == "ServiceAccount"}
        assert own <= accounts.items()
        # Kubernetes' own group of all kubelets.
        assert {one["name"] for one in binding["subjects"] if one["kind"] != "ServiceAccount"} <= {"system:nodes"}
    for flow in of_kind(objects, "FlowSchema"):
        for rule in flow["spec"]["rules"]:
            subjects = {(one["serviceAccount"]["name"], one["serviceAccount"]["namespace"]) for one in rule["subjects"]}
            assert subjects <= accounts.items()
    assert {pod["serviceAccountName"] for pod in _pods(objects)} == accounts.keys()
    guard = json.dumps(list(of_kind(objects, "ValidatingAdmissionPolicy")))
    # The installer writes no node: what it has done its node's advertiser reports.
    writers = {f"{namespace}:{name}" for name, namespace in accounts.items() if name != "mooring-node-installer"}
    assert set(re.findall(r"system:serviceaccount:([^']+)'", guard)) == writers


def test_pods_with_rights_on_their_node_have_a_namespace_of_their_own(objects: tuple[Document, ...]) -> None:
    """Pod Security lets none of them into the scheduler's namespace."""
    label = "pod-security.kubernetes.io/enforce"
    levels = {one["metadata"]["name"]: one["metadata"]["labels"][label] for one in of_kind(objects, "Namespace")}
    assert levels == {NAMESPACE: "restricted", NODE_NAMESPACE: "privileged"}
    for workload in of_kind(objects, *_WORKLOADS):
        is_scheduler = workload["metadata"]["name"] == "mooring-scheduler"
        assert workload["metadata"]["namespace"] == (NAMESPACE if is_scheduler else NODE_NAMESPACE)


def test_the_scheduler_can_be_kept_off_workers() -> None:
    """The component requires a control-plane node, where the base only prefers one."""
    (scheduler,) = of_kind(built("overlays/control-plane"), "Deployment")
    pod = scheduler["spec"]["template"]["spec"]
    (term,) = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert term == {"matchExpressions": [{"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"}]}
    assert pod["tolerations"] == [{"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}]


def test_no_pod_can_do_more_than_it_must(objects: tuple[Document, ...]) -> None:
    """Read-only root filesystem, no capability, no escalation, seccomp; root only where needed, with one folder."""
    scheduler, advertiser = (
        next(one["spec"]["template"]["spec"] for one in of_kind(objects, kind)) for kind in _WORKLOADS
    )
    assert scheduler["securityContext"]["runAsNonRoot"]
    assert scheduler["securityContext"]["runAsUser"] > 0
    assert not {"hostNetwork", "hostPID"} & scheduler.keys()
    assert all("secret" in volume for volume in scheduler.get("volumes", ()))
    for pod in (scheduler, advertiser):
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in _containers(pod):
            context = container["securityContext"]
            assert context["readOnlyRootFilesystem"]
            assert not context["allowPrivilegeEscalation"]
            assert context["capabilities"] == {"drop": ["ALL"]}
    writable = {
        container["name"]: {one["name"] for one in container["volumeMounts"] if not one.get("readOnly")}
        for container in _containers(advertiser)
    }
    assert writable == {"init": {"handed-offer"}, "advertiser": {"run-advertiser"}}


def test_the_programs_take_their_flags(objects: tuple[Document, ...]) -> None:
    """The program itself parses each of them; the scheduler's Lease is the one that its role names."""
    scheduler, advertiser = (
        next(one["spec"]["template"]["spec"] for one in of_kind(objects, kind)) for kind in _WORKLOADS
    )
    (container,) = scheduler["containers"]
    flags = [flag.replace("$(NAMESPACE)", NAMESPACE) for flag in container["args"]]
    _, config = load(SchedulerConfig, "mooring-scheduler", flags, {})
    assert (config.leader_elect, config.lease_namespace, config.metrics_addr) == (True, NAMESPACE, ":10259")
    mounted = {one["mountPath"] for one in container.get("volumeMounts", ())}
    files = (config.extender_tls_cert, config.extender_tls_key, config.extender_client_ca, config.signing_key)
    assert {str(Path(file).parent) for file in files if file} == mounted
    (role,) = [one for one in of_kind(objects, "Role") if "node-installer" not in one["metadata"]["name"]]
    assert role["rules"][1]["resourceNames"] == [f"{config.scheduler_name}-scheduler"]
    commands = []
    for container in _containers(advertiser):
        flags = [flag.replace("$(NODE_NAME)", "n1") for flag in container["args"]]
        command, host = load(AdvertiserConfig, "mooring-advertiser", flags, {}, ADVERTISER_COMMANDS)
        commands.append(command)
        assert host.node == "n1"
        mounted = {one["mountPath"] for one in container["volumeMounts"]}
        records = {str(host.sysfs), str(host.run / extract.FOLDER)}
        own = {str(host.state / handed_offer.FOLDER)} if command == "hand-over" else records
        assert own | {str(host.run / Path(READY).parent), str(host.offer.parent)} <= mounted
    assert commands == ["hand-over", "serve"]


def test_the_extender_answers_nobody_whom_the_operator_has_not_named(objects: tuple[Document, ...]) -> None:
    """By a certificate of his CA, or by an address: an overlay that starts its server has one of the two."""
    (deployment,) = of_kind(objects, "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    _, config = load(SchedulerConfig, "mooring-scheduler", container["args"], {})
    policies = list(of_kind(objects, "NetworkPolicy"))
    assert len(policies) == int(bool(config.extender_addr and not config.extender_client_ca))
    for policy in policies:
        wanted = policy["spec"]["podSelector"]["matchLabels"].items()
        assert wanted <= deployment["spec"]["template"]["metadata"]["labels"].items()
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        assert policy["spec"]["policyTypes"] == ["Ingress"]
        open_to_all = [rule for rule in policy["spec"]["ingress"] if "from" not in rule]
        (named,) = [rule for rule in policy["spec"]["ingress"] if "from" in rule]
        assert open_to_all == [{"ports": [{"port": "metrics"}]}]
        assert named == {"ports": [{"port": "extender"}], "from": [{"ipBlock": {"cidr": "192.0.2.1/32"}}]}
        assert ports == {"metrics": 10259, "extender": 8888}


def _pods(objects: tuple[Document, ...]) -> Iterator[Document]:
    return (one["spec"]["template"]["spec"] for one in of_kind(objects, *_WORKLOADS))


def _containers(pod: Document) -> list[Document]:
    containers: list[Document] = [*pod.get("initContainers", []), *pod["containers"]]
    return containers


def test_the_cni_configurations_are_what_the_plugin_reads() -> None:
    """Chained behind the pods' own network, and as a plugin of its own."""
    chain = json.loads((ROOT / "cni/10-mooring.conflist").read_text())
    plugin = json.loads((ROOT / "cni/mooring.conf").read_text())
    ours = [one for one in chain["plugins"] if one["type"] == "mooring-cni"]
    assert chain["plugins"][-1:] == ours
    for conf in (*({**one, "name": chain["name"], "cniVersion": chain["cniVersion"]} for one in ours), plugin):
        environment = {
            "CNI_COMMAND": "ADD",
            "CNI_CONTAINERID": "c1",
            "CNI_NETNS": "/run/netns/pod",
            "CNI_IFNAME": "eth0",
            "CNI_PATH": "/opt/cni/bin",
        }
        call = read_call(environment, json.dumps(conf).encode())
        read = read_conf(call, conf, "1.0.0")
        assert read.network_of("default").ipam == {"type": "host-local", "ranges": [[{"subnet": "10.56.0.0/16"}]]}


@pytest.mark.apiserver
@pytest.mark.parametrize("folder", ["overlays/extender", "base"])
def test_a_real_api_server_takes_everything(folder: str, request: pytest.FixtureRequest) -> None:
    """Ours keeps it, that of KUBECONFIG only tries; the operator's own kinds are unknown to both."""
    apply, documents = ["apply", "--server-side", "--force-conflicts", "-f", "-"], list(built(folder))
    if theirs := os.environ.get("KUBECONFIG"):
        applied = _kubectl(theirs, *apply, "--dry-run=server", [_in_default(one) for one in documents])
    else:
        applied = _kubectl(request.getfixturevalue("guarded_server"), *apply, documents)
    assert len(applied.splitlines()) == len(documents)


def _in_default(document: Document) -> Document:
    """Put an object into a namespace that is there: a dry run makes none."""
    metadata = document["metadata"]
    return {**document, "metadata": metadata | ({"namespace": "default"} if "namespace" in metadata else {})}


def _kubectl(kubeconfig: str | Path, *words: Any) -> str:
    *arguments, documents = words
    command = ["kubectl", "--kubeconfig", str(kubeconfig), *arguments]
    text = yaml.safe_dump_all(documents)
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.apiserver
def test_a_stock_kube_scheduler_takes_the_extender_configuration(tmp_path: Path, guarded_server: Path) -> None:
    """It reads it, fills in its defaults and writes it back: the extender's verbs and resources are as they were."""
    config = (ROOT / "components/extender/kube-scheduler.yaml").read_text()
    (given := tmp_path / "given.yaml").write_text(config.replace("/etc/kubernetes/scheduler.conf", str(guarded_server)))
    binary = Path(os.environ["KUBEBUILDER_ASSETS"]) / "kube-scheduler"
    if not binary.exists():
        pytest.skip("tier 'apiserver': KUBEBUILDER_ASSETS has no kube-scheduler")
    command = [str(binary), "--config", str(given), "--write-config-to", str(tmp_path / "taken.yaml")]
    flags = ["--secure-port=0", "--authentication-kubeconfig", str(guarded_server), "--authorization-kubeconfig"]
    done = subprocess.run(
        [*command, *flags, str(guarded_server)], capture_output=True, text=True, timeout=180, check=False
    )
    assert done.returncode == 0, done.stderr
    (wanted,), (taken,) = (yaml.safe_load(path.read_text())["extenders"] for path in (given, tmp_path / "taken.yaml"))
    # What is false is left out, in the list of resources too.
    taken["managedResources"] = [{"ignoredByScheduler": False} | one for one in taken["managedResources"]]
    assert {key: taken.get(key, False) for key in wanted} == wanted
    assert f"{wanted['urlPrefix']}/{wanted['filterVerb']}" == "http://127.0.0.1:8888/scheduler/filter"
