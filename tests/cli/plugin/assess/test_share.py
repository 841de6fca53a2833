"""`assess --share` writes what was read without what identifies the cluster, and the report about it is the same."""

import copy
import gzip
import io
import json
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from advertiser.host.capture import pack
from cli.__main__ import main
from cli.plugin.assess.collect import WORKLOADS, in_folder
from cli.plugin.assess.public_words import FIELDS
from cli.plugin.assess.report import as_document, assess
from cli.plugin.assess.share import write_shared
from cli.plugin.assess.snapshot import NODES, PODS, Snapshot
from cli.plugin.assess.stand_ins import StandIns
from cli.plugin.bundle.archive import reading
from cli.plugin.reports.recompute import PATHS
from devcluster.demo.plugin_cluster import GPU, PLANTED
from scheduler.kube.workload_objects import POD_GROUP_PATHS, Job


@pytest.fixture(scope="session")
def shared(broken: Snapshot, faulty_captures: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("shared") / "cluster.tar.gz"
    write_shared(str(file), broken, in_folder(str(faulty_captures), ["n1", "n2", "n3"]), "0.2.0")
    return file


def test_the_report_about_the_archive_has_the_same_findings(
    shared: Path, broken: Snapshot, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["assess", "--from", str(shared), "-o", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    own = json.loads(json.dumps(as_document(assess(broken, WORKLOADS))))
    assert sorted(one["kind"] for one in document["findings"]) == sorted(PLANTED)
    assert document["decisions"]["placed"] == own["decisions"]["placed"]
    assert [job["with_mooring"] for job in document["jobs"]] == [job["with_mooring"] for job in own["jobs"]]
    assert sorted(map(_bare, document["nodes"])) == sorted(map(_bare, own["nodes"]))


def _bare(node: dict[str, object]) -> str:
    return json.dumps({key: value for key, value in node.items() if key != "node"})


def test_nothing_in_the_archive_names_an_object_or_an_address(shared: Path, broken: Snapshot) -> None:
    """Every name, uid, boot id, label value, MAC and IP address of the cluster; PCI addresses stay."""
    with reading(shared) as bundle:
        texts = {name: bundle.read(name) for name in bundle.names() if not name.endswith("README.txt")}
    assert any(name.startswith("mooring-support/nodes/") for name in texts)
    everything = b"\n".join(texts.values())
    for secret in (
        b"uid-near",
        b"near",
        b"train-",
        b"rail",
        b"fast",
        b"boot-n1",
        b"rack0",
        b"10.0.0.1",
        b"10.1.0.7",
        b"02:00:01",
    ):
        assert secret not in everything, secret
    assert b"registry.example" not in everything
    assert b"0000:84:00" in everything


MARKERS = ("bigbank", "YmlnYmFuaw", "глобанк", json.dumps("глобанк")[1:-1])
POISONS: dict[str, Callable[[str], str]] = {
    "alone": lambda _text: "bigbank",
    "appended": lambda text: f"{text}-bigbank",
    "as a domain": lambda text: f"bigbank.example/{text}",
    "below a domain": lambda text: f"{text}/bigbank",
    "below a public domain": lambda _text: "node-restriction.kubernetes.io/bigbank-trading",
    "in a netdev's name": lambda _text: "ens1bigbank01",
    "after a PCI address": lambda _text: "0000:3b:00.2bigbank",
    "not ASCII": lambda _text: "глобанк",
    "appended, not ASCII": lambda text: f"{text}глобанк",
    "in base64": lambda _text: "YmlnYmFuaw==",
    "in JSON": lambda text: json.dumps(
        {"bigbank": {"глобанк": text, "labels": {"bigbank": "bigbank"}}, "reason": "bigbank"}
    ),
    "in JSON in JSON": lambda text: json.dumps([{"config": json.dumps({"type": "bigbank", "bigbank-10.0.0.7": text})}]),
}


def poisoned(value: Any, poison: Callable[[str], str]) -> Any:
    """Return an object in which every text has a marker, with an additional key that has one in every map."""
    if isinstance(value, dict):
        return {poison(str(key)): poison("") for key in value} | {
            key: poisoned(each, poison) for key, each in value.items()
        }
    if isinstance(value, list):
        return [poisoned(each, poison) for each in value]
    return poison(value) if isinstance(value, str) else value


def poisoned_capture(archive: Path, poison: Callable[[str], str]) -> bytes:
    """Return a capture in which every netdev, RDMA device, altname, resource and use by the host has a marker."""
    contents: dict[str, bytes | str | None] = {}
    with gzip.open(archive) as unpacked, tarfile.open(fileobj=unpacked) as tar:
        for member in tar:
            if "0000:84:00" in member.name:
                continue
            parts = (poison(one) if one.startswith(("enp", "mlx5_")) else one for one in member.name.split("/"))
            name = "/".join(one.replace("/", "-") for one in parts)
            if member.name == "use.json":
                record = json.loads(tar.extractfile(member).read())  # type: ignore[union-attr]
                record["pools"] = {poison(key): pci for key, pci in record["pools"].items()}
                record["host"] = {
                    pci: f"the host uses {poison('enp4s0f0v1')} (process {poison('a')}, port of {poison('bond0')})"[
                        :256
                    ]
                    for pci in record["settings"]
                }
                contents[name] = json.dumps(record).encode()
            elif member.name == "captured.json":
                record = json.loads(tar.extractfile(member).read())  # type: ignore[union-attr]
                record |= {"altnames": {poison("enp4s0f0"): [poison("enp4s0f0np0")]}, "boot": "bigbank"}
                record["programs"] = {poison("mooring-cni"): poison("0.1.0")}
                contents[name] = json.dumps(record).encode()
            elif member.isreg():
                is_name = name.endswith(("/ibdev", "/parent"))
                contents[name] = poison("mlx5_0").encode() if is_name else tar.extractfile(member).read()  # type: ignore[union-attr]
            else:
                contents[name] = f"../{poison('enp4s0f0')}" if member.issym() else None
    contents["sys/bigbank"] = b"bigbank"
    return pack(contents)


def unpacked(data: bytes) -> Iterator[str]:
    """Yield names, targets and contents of an archive, and of the archives in it."""
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        for member in tar:
            yield from (member.name, member.linkname)
            content = tar.extractfile(member).read() if member.isreg() else b""  # type: ignore[union-attr]
            if member.name.endswith(".tar.gz"):
                yield from unpacked(content)
            else:
                yield content.decode()


@pytest.mark.parametrize("poison", POISONS.values(), ids=POISONS.keys())
def test_no_text_of_the_cluster_is_in_the_archive(
    poison: Callable[[str], str], broken: Snapshot, faulty_captures: Path, tmp_path: Path
) -> None:
    """Neither in names of files, nor in keys, values, JSON within texts, or sysfs."""
    objects = [broken.all(NODES)[0], *broken.all(PODS)[-2:]]
    lists = {path: [poisoned(one, poison) for one in objects] for path in (NODES, PODS)}
    capture = poisoned_capture(faulty_captures / "n2.tar.gz", poison)
    node = "bigbank-n2"
    file = tmp_path / "shared.tar.gz"
    snapshot = Snapshot(lists, broken.now, {node: broken.captures["n2"]})
    write_shared(str(file), snapshot, [(node, lambda: io.BytesIO(capture))], "0.2.0")
    texts = list(unpacked(file.read_bytes()))
    assert len(texts) > 100
    for text in texts:
        assert [text[max(0, text.find(one) - 80) :][:160] for one in MARKERS if one in text] == []


def test_selectors_select_the_same_nodes_in_the_archive(
    broken: Snapshot, faulty_captures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Keys of labels are values in selectors: in affinities, spread constraints and tolerations."""
    expression = {"key": "acme.com/pool", "operator": "In", "values": ["blue"]}
    term = {"topologyKey": "acme.com/pool", "labelSelector": {"matchLabels": {"acme.com/team": "red"}}}
    affinity = {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [expression]}]
            }
        },
        "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]},
    }
    taint = {"key": "acme.com/pool", "value": "blue", "effect": "NoSchedule"}
    nodes: list[Any] = copy.deepcopy(list(broken.all(NODES)))
    for node in nodes:
        is_blue = node["metadata"]["name"] == "n2"
        node["metadata"]["labels"]["acme.com/pool"] = "blue" if is_blue else "green"
        node["spec"]["taints"] = [taint] if is_blue else []
    pods: list[Any] = copy.deepcopy(list(broken.all(PODS)))
    for pod in pods:
        if pod["metadata"]["name"] in ("far", "near"):
            pod["metadata"]["labels"]["acme.com/team"] = "red"
            tolerations = [{"key": "acme.com/pool", "operator": "Exists"}]
            pod["spec"] |= {"affinity": affinity, "tolerations": tolerations}
    changed = Snapshot({**broken.lists, NODES: nodes, PODS: pods}, broken.now, broken.captures)
    own: Any = as_document(assess(changed, WORKLOADS))["decisions"]
    file = tmp_path / "shared.tar.gz"
    write_shared(str(file), changed, in_folder(str(faulty_captures), ["n1", "n2", "n3"]), "0.2.0")
    assert main(["assess", "--from", str(file), "-o", "json"]) == 0
    archived = json.loads(capsys.readouterr().out)["decisions"]
    assert archived["placed"] == own["placed"] > 1
    assert archived["waiting"] == own["waiting"]
    assert sorted(tuple(one["vfs"]) for one in archived["pods"]) == sorted(tuple(one["vfs"]) for one in own["pods"])


def test_the_selector_of_an_object_may_be_labels_or_expressions() -> None:
    stand_ins = StandIns()
    label = stand_ins.key("acme.com/team")
    labels = {"matchLabels": {"acme.com/team": "red"}}
    red = stand_ins.text("red")
    assert stand_ins.object({"spec": {"selector": labels}}) == {"spec": {"selector": {"matchLabels": {label: red}}}}
    assert stand_ins.object({"spec": {"selector": {"acme.com/team": "red"}}}) == {"spec": {"selector": {label: red}}}


def test_every_field_that_the_scheduler_decides_by_is_kept() -> None:
    """Without those of which the archive says that they are left out."""
    left_out = {"message", "image", "images", "hostIP", "containerStatuses", "initContainerStatuses", "nodeInfo"}
    fields = set[str]()
    todo: list[Any] = [msgspec.inspect.type_info(kind) for kind in (*PATHS, *POD_GROUP_PATHS, Job)]
    seen = set[type]()
    while todo:
        kind = todo.pop()
        if isinstance(kind, msgspec.inspect.StructType):
            if kind.cls not in seen:
                seen.add(kind.cls)
                fields |= {one.encode_name for one in kind.fields}
                todo += [one.type for one in kind.fields]
        else:
            parts = (getattr(kind, name, ()) for name in ("item_type", "value_type", "types", "item_types"))
            todo += [one for part in parts for one in (part if isinstance(part, tuple) else (part,))]
    assert fields - FIELDS == left_out


def test_equal_texts_have_equal_stand_ins_and_others_differ() -> None:
    stand_ins = StandIns()
    pod: dict[str, Any] = {
        "metadata": {"name": "a", "labels": {"team": "x", "kubernetes.io/hostname": "n1"}},
        "spec": {
            "nodeName": "n1",
            "containers": [{"name": "a", "resources": {"limits": {GPU: "1", "acme.io/rdma-x": "2"}}}],
        },
    }
    found = stand_ins.object(pod)
    assert found["spec"]["nodeName"] == found["metadata"]["labels"]["kubernetes.io/hostname"] == stand_ins.name("n1")
    assert found["metadata"]["name"] == found["spec"]["containers"][0]["name"] != found["spec"]["nodeName"]
    limits = found["spec"]["containers"][0]["resources"]["limits"]
    assert limits.pop(GPU) == "1"
    ((resource, amount),) = limits.items()
    assert amount == "2"
    assert resource.startswith("name-")
    assert "/rdma-" in resource


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("0000:04:00.2", True),
        ("enp4s0f0", True),
        ("enx0c42a1000102", False),
        ("0c:42:a1:00:01:02", False),
        ("fe80::1", False),
        ("10.2.3.4", False),
        ("MT2123X01234", False),
        ("123456789", False),
        ("16", True),
        ("ens1f0np0", True),
        ("ibp59s0f1v12", True),
        ("rocep59s0f0", True),
        ("ens1prodbank01", False),
        ("bigbank-rail0", False),
        ("node-role.kubernetes.io/acme-gpu", False),
        ("node-role.kubernetes.io/control-plane", True),
        ("2023-11-14T20:00:00Z", True),
        ("batch/v1", True),
        ("bigbank/v1", False),
    ],
)
def test_a_part_is_kept_only_if_it_is_public(text: str, kept: bool) -> None:
    assert (StandIns().text(text) == text) is kept


SHARED = Path(__file__).with_name("shared")


@pytest.mark.parametrize("archive", sorted(SHARED.glob("*.tar.gz")), ids=lambda path: path.name)
def test_a_cluster_that_somebody_shared_has_its_expected_report(
    archive: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Beside NAME.tar.gz lies NAME.json, the output of `assess --from NAME.tar.gz -o json`."""
    assert main(["assess", "--from", str(archive), "-o", "json"]) == 0
    expected = json.loads(archive.with_name(archive.name.replace(".tar.gz", ".json")).read_text())
    assert json.loads(capsys.readouterr().out) == expected
