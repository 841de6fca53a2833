"""Installations of other people, rebuilt from public descriptions (``clusters/``): the report about each is right.

Each file says its sources, what in it is real and what was inferred. The nodes' trees are those of
tests/advertiser/hosts, which are rebuilt from listings of real machines.
"""

import io
import shutil
import tarfile
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
import yaml

from advertiser.formats.use_record import read_use
from advertiser.host.capture import pack_capture
from advertiser.host.sysfs import read_functions
from advertiser.inventory.facts import Host
from cli.plugin.assess.collect import KINDS, WORKLOADS
from cli.plugin.assess.node_archives import read_capture
from cli.plugin.assess.report import as_document, assess
from cli.plugin.assess.snapshot import Snapshot
from mooring.parsing import dump

CLUSTERS = sorted(Path(__file__).with_name("clusters").glob("*.yaml"))
HOSTS = Path(__file__).parents[3] / "advertiser/hosts/hosts.tar.xz"
# A list that the test reads by its kind; of kinds with several versions the newest is first.
PATHS = {kind: path for path, kind in reversed(list(KINDS.items()))}


@pytest.fixture(scope="session")
def trees(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Unpack the trees that a cluster has."""
    folder = tmp_path_factory.mktemp("hosts")
    wanted = {f"hosts/{node['tree']}/" for path in CLUSTERS for node in _read(path)["nodes"].values()}
    with tarfile.open(HOSTS) as archive:
        archive.extractall(folder, [one for one in archive if one.name.startswith(tuple(wanted))])
    return folder / "hosts"


def _read(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def capture(tree: Path, node: dict[str, Any]) -> bytes:
    """Return a node's archive; the netdevs of VFs that are away are in pods."""
    sysfs = tree / "sys"
    for pci in node.get("away", ()):
        for netdev in (sysfs / "bus/pci/devices" / pci / "net").iterdir():
            shutil.rmtree(netdev)
            (sysfs / "class/net" / netdev.name).unlink(missing_ok=True)
    return pack_capture(sysfs, Host("boot-1", read_functions(sysfs)), read_use(dump(node["use"])))


@pytest.mark.parametrize("path", CLUSTERS, ids=lambda path: path.stem)
def test_the_report_about_a_strangers_cluster_is_right(path: Path, trees: Path) -> None:
    cluster = _read(path)
    assert cluster["sources"]
    lists = defaultdict[str, list[Any]](list)
    for item in cluster["objects"]:
        lists[PATHS[item["kind"]]].append(item)
    captures = {
        name: read_capture(io.BytesIO(capture(trees / node["tree"], node)), name)
        for name, node in cluster["nodes"].items()
    }
    document: Any = as_document(assess(Snapshot(lists, 1_700_000_060.0, captures), WORKLOADS))
    expected = cluster["expected"]
    assert [[one["kind"], one["subject"]] for one in document["findings"]] == expected["findings"]
    assert document["decisions"]["placed"] == expected["placed"], document["decisions"]
    assert document["decisions"]["waiting"] == expected["waiting"]
    assert [text for text in expected["not_improved"] if text not in document["not_improved"]] == []
    decided = {one["pod"]: one for one in document["decisions"]["pods"]}
    for pod, choices in expected.get("near", {}).items():
        (gpu,), (vf,) = decided[pod]["gpus"], decided[pod]["vfs"]
        assert [gpu, vf[:7]] in choices
    assert any("nothing requests VFs of Mooring" in one["rule"] for one in document["manifests"])
