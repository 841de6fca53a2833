"""`assess --share` writes what was read without what identifies the cluster, and the report about it is the same."""

import json
from pathlib import Path
from typing import Any

import pytest

from cli.__main__ import main
from cli.plugin.assess.collect import WORKLOADS, in_folder
from cli.plugin.assess.report import as_document, assess
from cli.plugin.assess.share import write_shared
from cli.plugin.assess.snapshot import Snapshot
from cli.plugin.assess.stand_ins import StandIns
from cli.plugin.bundle.archive import reading
from devcluster.demo.plugin_cluster import GPU, PLANTED


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
