"""The chain beside other programs that read or write the runtime's folder: Multus, Cilium, service meshes, others."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.node.conftest import FLAGS, FLANNEL, FLANNEL_AT, KUBEADM, NodeHost
from tests.cli.node.installing import HostOf, run_install
from tests.cli.node.multus import FOLDER, STARTS, Start, called, names, start_daemon, start_thin, stop

CALICO_AT = f"{FOLDER}/10-calico.conflist"
PORTMAP = {"type": "portmap", "capabilities": {"portMappings": True}}
NODE = {"/var/lib/kubelet/kubeadm-flags.env": FLAGS}


def calico(version: str = "0.3.1", **more: object) -> str:
    plugins = [{"type": "calico", **more}, PORTMAP]
    return json.dumps({"cniVersion": version, "name": "k8s-pod-network", "plugins": plugins})


@pytest.fixture(params=["0.3.1", "1.0.0"])
def node(request: pytest.FixtureRequest, host_of: HostOf) -> NodeHost:
    return host_of({**NODE, CALICO_AT: calico(request.param)})


def _check(host: NodeHost) -> list[str]:
    status, said = host.run("check")
    assert status == (0 if "no findings: the installation is intact" in said else 1)
    return said.splitlines()[:-1]


def _of_multus(pods: list[str]) -> list[str]:
    """Return a pod's calls with both of Multus' names as one."""
    return ["multus" if plugin == "multus-shim" else plugin for plugin in pods]


WHOLE = ["multus", "calico", "portmap", "mooring-cni"]


@pytest.mark.parametrize("start", STARTS.values(), ids=STARTS)
def test_multus_before_us(start: Start, node: NodeHost) -> None:
    """However often it starts again, and whatever it then takes for the cluster's network."""
    start(node)
    run_install(node)
    for _ in range(3):
        assert _of_multus(called(node)) == WHOLE
        assert _check(node) == []
        start(node)
        assert "network      nothing to do" in node.run("install", "--wheelhouse", str(node.root.parent / "first"))[1]


@pytest.mark.parametrize("start", STARTS.values(), ids=STARTS)
def test_multus_after_us(start: Start, node: NodeHost) -> None:
    """It is called at once, and calls us once; the next installation chains us behind it, where we see annotations."""
    run_install(node)
    assert called(node) == ["calico", "portmap", "mooring-cni"]
    for _ in range(2):
        start(node)
        assert _of_multus(called(node)) == WHOLE
    assert any("hides the pods' annotations" in line for line in _check(node))
    assert node.run("install", "--wheelhouse", str(node.root.parent / "first"))[0] == 0
    for _ in range(2):
        assert _of_multus(called(node)) == WHOLE
        first = json.loads(node.text(f"{FOLDER}/{names(node)[0]}"))
        assert [plugin["type"] for plugin in first["plugins"]][1:] == ["mooring-cni"]
        assert _check(node) == []
        start(node)


@pytest.mark.parametrize("upgrade", [(start_thin, start_daemon), (start_daemon, start_thin)], ids=["thick", "thin"])
def test_multus_is_replaced_by_its_other_form(upgrade: tuple[Start, Start], node: NodeHost) -> None:
    """The copy that we have goes on until the next installation."""
    old, new = upgrade
    old(node)
    run_install(node)
    stop(node)
    new(node)
    assert _of_multus(called(node)) == WHOLE
    assert node.run("install", "--wheelhouse", str(node.root.parent / "first"))[0] == 0
    assert called(node)[0] == ("multus-shim" if new is start_daemon else "multus")
    assert _of_multus(called(node)) == WHOLE
    assert _check(node) == []


@pytest.mark.parametrize("start", STARTS.values(), ids=STARTS)
def test_a_change_of_the_clusters_network_reaches_the_copies(start: Start, node: NodeHost) -> None:
    """Multus has copied our older copy of it."""
    start(node)
    run_install(node)
    start(node)
    node.write(CALICO_AT, calico("0.3.1", mtu=8000))
    node.run("install", "--wheelhouse", str(node.root.parent / "first"))
    start(node)
    assert _check(node) == []
    assert _of_multus(called(node)) == WHOLE
    if start is start_thin:
        assert "8000" in node.text(f"{FOLDER}/00-mooring.conflist")


@pytest.mark.parametrize("start", STARTS.values(), ids=STARTS)
@pytest.mark.parametrize("after", [True, False], ids=["after", "before"])
def test_removal_leaves_nothing_of_ours_to_call(start: Start, node: NodeHost, *, after: bool) -> None:
    """Multus may have a copy of our chain, or its path: pods would get no network until its next start."""
    if not after:
        start(node)
    run_install(node)
    start(node)
    assert node.run("remove")[0] == 0
    assert _of_multus(called(node)) == ["multus", "calico", "portmap"]
    text = next(text for path, text in node.tree().items() if "00-multus" in path)
    assert "mooring" not in text
    stop(node)
    assert called(node) == ["calico", "portmap"]


def test_the_name_of_an_earlier_release_is_replaced(kubeadm: NodeHost) -> None:
    """Under it the runtime would not use a Multus that comes later."""
    run_install(kubeadm)
    ours = kubeadm.root / FOLDER.lstrip("/") / names(kubeadm)[0]
    ours.rename(ours.with_name("00-mooring.conflist"))
    journal = "/var/lib/mooring/install/journal.json"
    kubeadm.write(journal, kubeadm.text(journal).replace(ours.name, "00-mooring.conflist"))
    assert called(kubeadm) == ["flannel", "portmap", "mooring-cni"]
    assert len(_check(kubeadm)) == 2
    assert kubeadm.run("install", "--wheelhouse", str(kubeadm.root.parent / "first"))[0] == 0
    assert names(kubeadm) == ["00-n-mooring.conflist", "10-flannel.conflist"]
    assert called(kubeadm) == ["flannel", "portmap", "mooring-cni"]
    assert kubeadm.run("remove")[0] == 0
    assert names(kubeadm) == ["10-flannel.conflist"]


def test_a_chain_that_calls_itself_is_found_and_repaired(host_of: HostOf) -> None:
    """An earlier release has made it so, after Multus had started again."""
    multus = {"cniVersion": "0.3.1", "name": "m", "type": "multus-shim"}
    loop = {**multus, "clusterNetwork": f"/host{FOLDER}/00-mooring.conflist"}
    chain = {"cniVersion": "0.4.0", "name": "m", "plugins": [loop, {"type": "mooring-cni"}]}
    files = {f"{FOLDER}/00-multus.conf": loop, f"{FOLDER}/00-mooring.conflist": chain}
    host = host_of({**NODE, CALICO_AT: calico(), **{path: json.dumps(text) for path, text in files.items()}})
    assert any("calls itself endlessly: 00-mooring.conflist -> 00-mooring.conflist" in line for line in _check(host))
    run_install(host)
    assert _of_multus(called(host)) == WHOLE
    assert _check(host) == []


@pytest.mark.parametrize("path", [f"/host{FOLDER}", f"/host{FOLDER}/", f"{FOLDER}/00-n-mooring.conflist"])
def test_check_follows_what_an_operator_has_written(host_of: HostOf, path: str) -> None:
    """A loop is one also where mooring-node was told to leave the folder alone; of a folder Multus takes the first."""
    multus = {"type": "multus", "clusterNetwork": path}
    chain = json.dumps({"cniVersion": "1.0.0", "name": "m", "plugins": [multus, {"type": "mooring-cni"}]})
    host = host_of({**NODE, CALICO_AT: calico(), f"{FOLDER}/00-n-mooring.conflist": chain})
    run_install(host, "first", "--network", "none")
    assert host.run("check", "--network", "none")[0] == 1
    assert "calls itself endlessly" in host.run("check", "--network", "none")[1]


def _start_by_name(host: NodeHost, name: str = "multus-cni-network") -> None:
    """Write a configuration of Multus' that names a network, as an operator does."""
    by_name = {"type": "multus", "clusterNetwork": "k8s-pod-network", "confDir": f"/host{FOLDER}"}
    host.write(f"{FOLDER}/00-multus.conf", json.dumps({"cniVersion": "0.3.1", "name": name, **by_name}))


@pytest.mark.parametrize("name", ["multus-cni-network", "k8s-pod-network"])
def test_multus_that_is_given_a_networks_name_calls_that(node: NodeHost, name: str) -> None:
    """Not our copy, which may have that name: before an installation it calls ours, and `check` says so."""
    again = ("install", "--wheelhouse", str(node.root.parent / "first"))
    run_install(node)
    _start_by_name(node, name)
    if name == "multus-cni-network":
        assert called(node) == WHOLE
        assert any("hides the pods' annotations" in line for line in _check(node))
    for _ in range(2):
        assert node.run(*again)[0] == 0
        assert called(node) == WHOLE
        assert _check(node) == []
        assert "network      nothing to do" in node.run(*again)[1]
    assert node.run("remove")[0] == 0
    assert names(node) == ["00-multus.conf", "10-calico.conflist"]


def test_a_network_that_multus_has_elsewhere_is_left_alone(node: NodeHost) -> None:
    """A NetworkAttachmentDefinition, or a configuration of Multus' own folder."""
    by_name = {"type": "multus", "clusterNetwork": "k8s-pod-network", "confDir": "/etc/cni/multus/net.d"}
    node.write(f"{FOLDER}/00-multus.conf", json.dumps({"cniVersion": "0.3.1", "name": "m", **by_name}))
    run_install(node)
    assert json.loads(node.text(f"{FOLDER}/00-mooring.conflist"))["plugins"][0] == by_name
    assert _check(node) == []


def test_a_file_that_multus_would_call_in_vain_is_named(node: NodeHost) -> None:
    """Somebody has removed our chain after Multus had started beside it."""
    run_install(node)
    start_daemon(node)
    (node.root / FOLDER.lstrip("/") / "00-n-mooring.conflist").unlink()
    assert any("would call '00-n-mooring.conflist', which is not in" in line for line in _check(node))
    assert node.run("install", "--wheelhouse", str(node.root.parent / "first"))[0] == 0
    assert _of_multus(called(node)) == WHOLE
    assert _check(node) == []


def test_two_calls_for_one_pod_are_found(host_of: HostOf) -> None:
    """An operator's chain behind Multus, whose copy of the cluster's network has mooring-cni too."""
    inner = {"cniVersion": "0.4.0", "name": "a", "plugins": [{"type": "calico"}, {"type": "mooring-cni"}]}
    outer = {
        "cniVersion": "0.4.0",
        "name": "b",
        "plugins": [{"type": "multus", "delegates": [inner]}, {"type": "mooring-cni"}],
    }
    host = host_of({**NODE, f"{FOLDER}/05-operator.conflist": json.dumps(outer)})
    run_install(host)
    assert any("mooring-cni would be called 2 times for each pod" in line for line in _check(host))


@pytest.mark.parametrize(
    "entry",
    [
        {"type": "genie", "kubernetes": {}},
        {"type": "metaplug", "clusterNetwork": f"/host{FOLDER}/10-flannel.conflist"},
        {"type": "metaplug", "delegates": [json.loads(FLANNEL)]},
        {"type": "metaplug", "default": {"type": "flannel", "name": "cbr0"}},
    ],
)
def test_other_plugins_that_copy_the_first_configuration_are_refused(host_of: HostOf, entry: dict[str, Any]) -> None:
    """By name, and with what to do instead; nothing is changed."""
    host = host_of({**KUBEADM, f"{FOLDER}/00-meta.conf": json.dumps({"cniVersion": "0.3.1", "name": "m", **entry})})
    before = host.tree()
    status, said = host.run("install", "--wheelhouse", str(host.wheelhouse("first")))
    assert status == 1
    assert f"plugin '{entry['type']}' of '00-meta.conf'" in said
    assert "add mooring-cni as the last plugin there, and use --network none" in said
    assert host.tree() == before


@pytest.mark.parametrize(
    "entry",
    [
        {"type": "flannel", "delegate": {"hairpinMode": True}},
        {
            "type": "calico",
            "kubernetes": {"kubeconfig": f"{FOLDER}/calico-kubeconfig"},
            "ipam": {"type": "calico-ipam"},
        },
        {"type": "danm", "kubeconfig": f"{FOLDER}/danm_kubeconfig", "cniDir": FOLDER},
    ],
)
def test_plugins_with_files_of_their_own_are_chained(host_of: HostOf, entry: dict[str, Any]) -> None:
    """A kubeconfig beside the configurations is none of them."""
    host = host_of({**NODE, f"{FOLDER}/10-a.conf": json.dumps({"cniVersion": "0.3.1", "name": "a", **entry})})
    run_install(host)
    assert called(host) == [entry["type"], "mooring-cni"]
    assert _check(host) == []


def test_multus_without_any_other_network_is_refused(host_of: HostOf) -> None:
    """It would have nothing to call but our own chain."""
    loop = {
        "cniVersion": "0.3.1",
        "name": "m",
        "type": "multus-shim",
        "clusterNetwork": f"{FOLDER}/00-mooring.conflist",
    }
    host = host_of({**NODE, f"{FOLDER}/00-multus.conf": json.dumps(loop)})
    status, said = host.run("install", "--wheelhouse", str(host.wheelhouse("first")))
    assert status == 1
    assert "has no other network configuration" in said


def _insert(host: NodeHost, name: str, entry: dict[str, Any]) -> None:
    """Put a plugin at the end of a list, in another form of JSON, as service meshes do."""
    document = json.loads(host.text(f"{FOLDER}/{name}"))
    document["plugins"] = [plugin for plugin in document["plugins"] if plugin["type"] != entry["type"]] + [entry]
    host.write(f"{FOLDER}/{name}", json.dumps(document, sort_keys=True, indent=4))


@pytest.mark.parametrize("mesh", ["istio-cni", "linkerd-cni"])
def test_a_service_mesh_stays_in_the_chain_that_it_has_joined(kubeadm: NodeHost, mesh: str) -> None:
    """It looks that it is in the first configuration: taken out, it would put itself in again."""
    _insert(kubeadm, Path(FLANNEL_AT).name, {"type": mesh, "log_level": "info"})
    run_install(kubeadm)
    assert called(kubeadm) == ["flannel", "portmap", mesh, "mooring-cni"]
    _insert(kubeadm, names(kubeadm)[0], {"type": mesh, "log_level": "debug"})
    assert _check(kubeadm) == []
    kubeadm.write("/etc/mooring/cni.json", '{"ipam":{"type":"host-local"}}')
    assert kubeadm.run("install", "--wheelhouse", str(kubeadm.root.parent / "first"))[0] == 0
    assert called(kubeadm) == ["flannel", "portmap", "mooring-cni", mesh]
    assert "debug" in kubeadm.text(f"{FOLDER}/{names(kubeadm)[0]}")


@pytest.mark.parametrize("at", [1, 2])
def test_a_service_mesh_that_was_there_first_need_not_join_our_chain(kubeadm: NodeHost, at: int) -> None:
    """Its plugin is in the configuration that ours copies: it finds it in ours, and writes nothing."""
    document = json.loads(FLANNEL)
    document["plugins"].insert(at, {"type": "istio-cni"})
    kubeadm.write(FLANNEL_AT, json.dumps(document))
    run_install(kubeadm)
    chain = [*(plugin["type"] for plugin in document["plugins"]), "mooring-cni"]
    assert (called(kubeadm), _check(kubeadm)) == (chain, [])
    again = kubeadm.run("install", "--wheelhouse", str(kubeadm.root.parent / "first"))[1]
    assert "network      nothing to do" in again


def test_removal_leaves_no_call_of_ours_in_a_meshs_own_copy(kubeadm: NodeHost) -> None:
    """Istio's, with istioOwnedCNIConfig: the runtime uses it once our chain is gone."""
    run_install(kubeadm)
    copy = json.loads(kubeadm.text(f"{FOLDER}/{names(kubeadm)[0]}"))
    copy["plugins"].append({"type": "istio-cni"})
    kubeadm.write(f"{FOLDER}/02-istio-cni.conflist", json.dumps(copy))
    assert kubeadm.run("remove")[0] == 0
    assert called(kubeadm) == ["flannel", "portmap", "istio-cni"]


def test_cilium_that_takes_the_folder_for_itself_is_named(host_of: HostOf) -> None:
    """It sets our chain aside within a moment; the installation says beforehand what Cilium needs."""
    cilium = json.dumps({"cniVersion": "0.3.1", "name": "cilium", "plugins": [{"type": "cilium-cni"}]})
    host = host_of({**NODE, f"{FOLDER}/05-cilium.conflist": cilium})
    status, said = host.run("install", "--wheelhouse", str(host.wheelhouse("first")))
    assert status == 0
    assert "cni.exclusive: false" in said
    ours = host.root / FOLDER.lstrip("/") / names(host)[0]
    ours.rename(ours.with_name(f"{ours.name}.cilium_bak"))
    assert any("Cilium has disabled Mooring's chain: set cni.exclusive: false" in line for line in _check(host))
    assert host.run("install", "--wheelhouse", str(host.root.parent / "first"))[0] == 0
    assert _check(host) == []
    assert host.run("remove")[0] == 0
    assert names(host) == ["05-cilium.conflist"]


@pytest.mark.parametrize(
    ("ending", "says"),
    [
        (".old", "Multus has disabled Mooring's chain: remove --rename-conf-file from the arguments of its DaemonSet"),
        (".off", "another program has disabled Mooring's chain: find out who renames files there"),
    ],
)
def test_whoever_renames_our_chain_is_named(host_of: HostOf, ending: str, says: str) -> None:
    """By the new name's ending; the renamed file goes with the installation."""
    host = host_of(KUBEADM)
    run_install(host)
    ours = host.root / FOLDER.lstrip("/") / names(host)[0]
    ours.rename(ours.with_name(f"{ours.name}{ending}"))
    assert any(says in line for line in _check(host))
    assert host.run("remove")[0] == 0
    assert names(host) == [FLANNEL_AT.rpartition("/")[2]]


@pytest.mark.parametrize(
    ("raw", "who"),
    [
        ({"name": "x", "type": "bridge"}, "'bridge'"),
        ({"name": "kindnet", "type": "ptp"}, "kindnet"),
        ({"name": "ovn-kubernetes", "type": "ovn-k8s-cni-overlay"}, "OVN-Kubernetes"),
    ],
)
def test_a_network_whose_file_sorts_before_ours_is_named(host_of: HostOf, raw: dict[str, str], who: str) -> None:
    """Pods would get no VFs; `install` chooses an earlier name and chains to that network."""
    host = host_of(KUBEADM)
    run_install(host)
    host.write(f"{FOLDER}/00-aaa.conf", json.dumps({"cniVersion": "0.4.0", **raw}))
    assert any(
        f"00-aaa.conf: the runtime uses this file of {who}, not Mooring's chain" in line for line in _check(host)
    )
    assert host.run("install", "--wheelhouse", str(host.root.parent / "first"))[0] == 0
    assert (_check(host), called(host)) == ([], [raw["type"], "mooring-cni"])


def test_a_copy_that_cilium_has_made_of_our_chain_is_not_copied_again(host_of: HostOf) -> None:
    """Chained behind another network it copies the first file with that network's name, and that is ours."""
    aws = json.dumps({"cniVersion": "0.4.0", "name": "aws-cni", "plugins": [{"type": "aws-cni"}, {"type": "portmap"}]})
    host = host_of({**NODE, f"{FOLDER}/10-aws.conflist": aws})
    run_install(host)
    copy = json.loads(host.text(f"{FOLDER}/{names(host)[0]}"))
    copy["plugins"].append({"type": "cilium-cni", "chaining-mode": "aws-cni"})
    host.write(f"{FOLDER}/05-cilium.conflist", json.dumps(copy))
    for _ in range(2):
        assert host.run("install", "--wheelhouse", str(host.root.parent / "first"))[0] == 0
        assert called(host) == ["aws-cni", "portmap", "cilium-cni", "mooring-cni"]
        assert _check(host) == []
    assert host.run("remove")[0] == 0
    assert called(host) == ["aws-cni", "portmap", "cilium-cni"]
