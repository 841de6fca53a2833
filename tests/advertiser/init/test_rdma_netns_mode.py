"""A mode of the RDMA stack that is left for the next boot: what is written, and what the operator has to do."""

from pathlib import Path

import pytest

from advertiser.init.rdma_netns_mode import leave_for_next_boot


@pytest.fixture
def options(tmp_path: Path) -> Path:
    return tmp_path / "modprobe.d/mooring-rdma.conf"


def test_the_option_is_written_once_and_a_reboot_is_asked_for(options: Path) -> None:
    """An initramfs that loads ib_core has its own copy of modprobe.d."""
    first = leave_for_next_boot("exclusive", options, "boot-1")
    assert "options ib_core netns_mode=0" in options.read_text().splitlines()
    assert "now sets mode exclusive" in first
    assert "reboot this node" in first
    assert "`dracut -f`" in first
    assert leave_for_next_boot("exclusive", options, "boot-1") == first


def test_an_option_that_a_boot_has_not_heeded_is_told_with_another_remedy(options: Path) -> None:
    """The initramfs loads ib_core and is older than the file, or the kernel has it built in: no reboot changes that."""
    leave_for_next_boot("exclusive", options, "boot-1")
    for _ in range(2):
        second = leave_for_next_boot("exclusive", options, "boot-2")
        assert "set mode exclusive before this boot" in second
        for remedy in ("`dracut -f`", "`update-initramfs -u`", "ib_core.netns_mode=0"):
            assert remedy in second


def test_a_mode_that_the_operator_changes_is_new_in_this_boot(options: Path) -> None:
    """What an earlier boot found is the other mode's."""
    leave_for_next_boot("exclusive", options, "boot-1")
    assert "now sets mode shared" in leave_for_next_boot("shared", options, "boot-2")
    assert "ib_core.netns_mode=1" in leave_for_next_boot("shared", options, "boot-3")


def test_a_file_of_an_earlier_version_was_there_before_this_boot(options: Path) -> None:
    """It has the option alone: the remedy with the initramfs helps in either case."""
    options.parent.mkdir()
    options.write_text("options ib_core netns_mode=0\n")
    assert "set mode exclusive before this boot" in leave_for_next_boot("exclusive", options, "boot-2")
