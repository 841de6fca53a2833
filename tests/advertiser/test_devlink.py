"""What devlink is asked, and about which tree; its answers are the lab kernel's (tests/lab/test_devlink.py)."""

from collections.abc import Iterable
from pathlib import Path

import pytest

from advertiser import devlink
from advertiser.facts import EswitchMode

NOWHERE = "ffff:ff:1f.7"


def test_a_device_that_devlink_does_not_know_has_no_mode() -> None:
    """Nor has any where the kernel has no devlink: neither is an error."""
    assert devlink.eswitch_modes([NOWHERE]) == {}


def test_devlink_is_asked_about_this_machines_own_tree_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A captured host's PF has the address of another device here, which may be in the other mode."""

    def answer(devices: Iterable[str], bus: str = "pci") -> dict[str, EswitchMode]:
        return dict.fromkeys(devices, "switchdev")

    monkeypatch.setattr(devlink, "eswitch_modes", answer)
    assert devlink.read_modes(tmp_path, [NOWHERE]) == {}
    assert devlink.read_modes(tmp_path / "gone", [NOWHERE]) == {}
    assert devlink.read_modes(Path("/sys"), [NOWHERE]) == {NOWHERE: "switchdev"}
