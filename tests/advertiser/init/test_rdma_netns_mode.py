"""A mode of the RDMA stack that is left for the next boot: what is written, and what the operator has to do."""

import os
from pathlib import Path

import pytest

from advertiser.init.rdma_netns_mode import leave_for_next_boot

# UNIX times: of the boot in which the file is written, and of a later one.
BOOT, NEXT_BOOT = 1_700_000_000.0, 1_700_001_000.0


@pytest.fixture
def options(tmp_path: Path) -> Path:
    return tmp_path / "modprobe.d/mooring-rdma.conf"


def _left(options: Path, boot_time: float, wanted: str = "exclusive") -> str:
    """Return what init says; a file that it writes is a minute younger than the boot."""
    before = options.read_text() if options.exists() else None
    said = leave_for_next_boot("shared" if wanted == "shared" else "exclusive", options, boot_time)
    if options.read_text() != before:
        os.utime(options, (boot_time + 60, boot_time + 60))
    return said


def test_the_option_is_written_once_and_a_reboot_is_asked_for(options: Path) -> None:
    """An initramfs that loads ib_core has its own copy of modprobe.d."""
    first = _left(options, BOOT)
    assert options.read_text() == "options ib_core netns_mode=0\n"
    assert "now sets mode exclusive" in first
    assert "reboot this node" in first
    assert "`dracut -f`" in first
    assert _left(options, BOOT) == first


def test_an_option_that_a_boot_has_not_heeded_is_told_with_another_remedy(options: Path) -> None:
    """The initramfs loads ib_core and is older than the file, or the kernel has it built in: no reboot changes that."""
    _left(options, BOOT)
    for _ in range(2):
        second = _left(options, NEXT_BOOT)
        assert "set mode exclusive before this boot" in second
        for remedy in ("`dracut -f`", "`update-initramfs -u`", "ib_core.netns_mode=0"):
            assert remedy in second


def test_a_mode_that_the_operator_changes_is_new_in_this_boot(options: Path) -> None:
    """What an earlier boot found is the other mode's."""
    _left(options, BOOT)
    assert "now sets mode shared" in _left(options, NEXT_BOOT, "shared")
    assert "ib_core.netns_mode=1" in _left(options, NEXT_BOOT + 1000, "shared")
