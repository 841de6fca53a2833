"""The stored result of a hardware test: what is written is read, and holds for its driver and kernel."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from mooring.errors import RecordError
from mooring.hardware_folder import keep_result, read_results
from mooring.records import hardware_result
from mooring.records.hardware_result import HardwareResult, dump_hardware_result, read_hardware_result

PF = "0000:04:00.0"
RESULT = HardwareResult(
    pf=PF,
    driver="mlx5_core",
    kernel="6.12.57+deb13-amd64",
    at=datetime(2026, 11, 22, 14, tzinfo=UTC),
    checks={"min_rate": "differs", "max_rate": "shown"},
    firmware="22.43.1014",
)


def test_what_is_written_is_read() -> None:
    """Its time is to the second, as in all records."""
    assert read_hardware_result(dump_hardware_result(RESULT), "x") == RESULT


def test_a_result_is_that_of_its_driver_and_kernel() -> None:
    """Linux 6.13 changed what mlx5_core does with a refused min rate: a result of an earlier kernel is none there."""
    assert RESULT.outcome("min_rate", "mlx5_core", "6.12.57+deb13-amd64") == "differs"
    assert RESULT.outcome("min_rate", "mlx5_core", "6.18.1") == "not_asked"
    assert RESULT.outcome("min_rate", "vfio-pci", "6.12.57+deb13-amd64") == "not_asked"
    assert RESULT.outcome("vlan", "mlx5_core", "6.12.57+deb13-amd64") == "not_asked"


def test_a_result_is_kept_and_shown_to_the_advertiser(tmp_path: Path) -> None:
    """Before the server has made the folders of this boot, the state folder alone has it."""
    keep_result(tmp_path / "state", tmp_path / "run", RESULT)
    assert not (tmp_path / "run").exists()
    (tmp_path / "run" / hardware_result.EXTRACT_FOLDER).mkdir(parents=True)
    keep_result(tmp_path / "state", tmp_path / "run", RESULT)
    for folder in (tmp_path / "state" / hardware_result.FOLDER, tmp_path / "run" / hardware_result.EXTRACT_FOLDER):
        assert read_results(folder) == {PF: RESULT}


def test_a_result_that_cannot_be_read_hides_no_other(tmp_path: Path) -> None:
    """It is that of one PF."""
    keep_result(tmp_path, tmp_path, RESULT)
    (tmp_path / hardware_result.FOLDER / "0000:05:00.0.json").write_text("{")
    found = read_results(tmp_path / hardware_result.FOLDER)
    assert found[PF] == RESULT
    assert isinstance(found["0000:05:00.0"], RecordError)


def test_a_field_of_a_newer_mooring_node_is_ignored() -> None:
    """The programs may be of different versions."""
    document = json.loads(dump_hardware_result(RESULT))
    document["checks"]["queue.depth"] = "shown"
    read = read_hardware_result(json.dumps(document | {"more": 1}), "x")
    assert read.checks["min_rate"] == "differs"


@pytest.mark.parametrize(
    "change",
    [
        {"v": 2},
        {"pf": "eth0"},
        {"at": "2026-13-22T14:00:00Z"},
        {"checks": {"min_rate": "ok"}},
    ],
)
def test_anything_else_is_refused(change: dict[str, object]) -> None:
    """By name, as every record is."""
    with pytest.raises(RecordError, match=r"hardware/x\.json"):
        read_hardware_result(json.dumps(json.loads(dump_hardware_result(RESULT)) | change), "hardware/x.json")
