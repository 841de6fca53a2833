"""The fake runtime's CDI: a device's nodes by its qualified name."""

import json
from pathlib import Path

import pytest

from devcluster.runtime.cdi import CdiError, device_nodes
from devcluster.runtime.containerd import fetched


def test_a_name_gives_the_nodes_of_its_device(tmp_path: Path) -> None:
    """Where the host has them under another path, by that; an unknown name is an error, as for containerd."""
    one = {"path": "/dev/nvidia0", "hostPath": "/host/dev/nvidia0"}
    devices = [
        {"name": "a", "containerEdits": {"deviceNodes": [one, {"path": "/dev/nvidiactl"}]}},
        {"name": "b", "containerEdits": {}},
    ]
    document = {"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": devices}
    (tmp_path / "nvidia.json").write_text(json.dumps(document))
    expected = [("/dev/nvidia0", "/host/dev/nvidia0"), ("/dev/nvidiactl", "/dev/nvidiactl")]
    assert device_nodes(tmp_path, ["nvidia.com/gpu=b", "nvidia.com/gpu=a"]) == expected
    assert device_nodes(tmp_path / "none", []) == []
    with pytest.raises(CdiError, match=r"unresolvable CDI devices nvidia\.com/gpu=c"):
        device_nodes(tmp_path, ["nvidia.com/gpu=a", "nvidia.com/gpu=c"])


def test_runtimes_that_were_fetched_completely_are_found(tmp_path: Path) -> None:
    """A folder that is still being unpacked is none."""
    for version, is_complete in (("1.7", True), ("2", False)):
        (tmp_path / version / "usr/bin").mkdir(parents=True)
        if is_complete:
            (tmp_path / version / "complete").touch()
    assert fetched(tmp_path) == [tmp_path / "1.7/usr/bin"]
    assert fetched(tmp_path / "none") == []
