"""The check as a process of its own, while the shim's configuration is broken too."""

import time
from pathlib import Path

import pytest

from cri_shim.bypass.device_checks import INTERVAL_S, DeviceChecks
from tests.cri_shim.bypass.conftest import Clock
from tests.support.polling import wait_until


@pytest.fixture
def flags(tmp_path: Path) -> list[str]:
    (tmp_path / "state").mkdir()
    folders = [word for name in ("state", "run", "sys", "dev", "proc") for word in (f"--{name}", str(tmp_path / name))]
    return [{"--sys": "--sysfs"}.get(word, word) for word in folders]


def result_left(checks: DeviceChecks, tmp_path: Path) -> bool:
    checks.advance()
    return (tmp_path / "run/extract/without-devices.json").exists()


def has_ended(checks: DeviceChecks) -> bool:
    checks.advance()
    return checks._process is None


def test_a_check_is_made_at_once_and_every_few_minutes(tmp_path: Path, flags: list[str]) -> None:
    """Three within ten minutes, whenever those begin."""
    clock = Clock()
    checks = DeviceChecks(flags, clock)
    wait_until(lambda: result_left(checks, tmp_path), limit_s=240)
    wait_until(lambda: has_ended(checks))
    (tmp_path / "run/extract/without-devices.json").unlink()
    checks.advance()
    assert checks._process is None, "not due"
    clock.now_s += INTERVAL_S
    wait_until(lambda: result_left(checks, tmp_path), limit_s=240)
    assert checks.failure == ""
    checks.stop()


def test_a_configuration_that_cannot_be_read_does_not_keep_it(
    tmp_path: Path, flags: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be what has broken the shim."""
    (tmp_path / "config.yaml").write_text("mooring-cri-shim: [")
    monkeypatch.setenv("MOORING_CONFIG", str(tmp_path / "config.yaml"))
    checks = DeviceChecks(flags, time.monotonic)
    wait_until(lambda: result_left(checks, tmp_path), limit_s=240)
    checks.stop()
