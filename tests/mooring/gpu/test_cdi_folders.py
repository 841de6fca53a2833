"""Folders of CDI specifications: what is none keeps neither the shim nor the advertiser."""

import json
from pathlib import Path

import pytest

from mooring.gpu.cdi_folders import CdiFolders
from tests.support.foreign import litter

SPECIFICATION = json.dumps(
    {
        "cdiVersion": "0.5.0",
        "kind": "vendor.com/gpu",
        "devices": [{"name": "0", "containerEdits": {"deviceNodes": [{"path": "/dev/nvidia0"}]}}],
    }
)


@pytest.mark.root
def test_what_is_no_specification_is_passed_over(tmp_path: Path) -> None:
    """Pipes, sockets, links without an end, folders with a specification's name: the others count."""
    litter(tmp_path, "a.yaml", "b.json", "c.yaml", "d.json", "e.yaml", "f.json", "g.yaml", "h.json")
    (tmp_path / "vendor.json").write_text(SPECIFICATION)
    for _ in range(2):
        assert [device.qualified_name for device in CdiFolders([tmp_path]).devices()] == ["vendor.com/gpu=0"]


def test_a_link_to_a_specification_counts_as_for_the_runtime(tmp_path: Path) -> None:
    """A runtime reads the file behind it (scanSpecDirs and ReadSpec of container-device-interface, pkg/cdi)."""
    folder = tmp_path / "cdi"
    folder.mkdir()
    (tmp_path / "vendor.json").write_text(SPECIFICATION)
    (folder / "vendor.yaml").symlink_to(tmp_path / "vendor.json")
    assert [device.qualified_name for device in CdiFolders([folder]).devices()] == ["vendor.com/gpu=0"]


def test_a_specification_that_is_not_utf_8_is_none(tmp_path: Path) -> None:
    """A runtime refuses it too."""
    (tmp_path / "vendor.json").write_bytes(SPECIFICATION.replace("nvidia0", "nvidia\xff").encode("latin-1"))
    assert CdiFolders([tmp_path]).devices() == ()
