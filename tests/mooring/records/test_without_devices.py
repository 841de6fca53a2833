"""The report of containers without devices: what is written is read, and nothing else breaks a reader."""

import json

import pytest

from mooring.errors import RecordError
from mooring.parsing import MAX_BYTES
from mooring.records.without_devices import WithoutDevices, dump_without_devices, read_without_devices

ONE = WithoutDevices("ml/web", "8c2f", "trainer", "5f0e", ("0000:04:00.5",))
OTHER = WithoutDevices("ml/web", "8c2f", "sidecar", "60aa", ("0000:04:00.5", "0000:04:00.6"), stopped=True)
THIRD = WithoutDevices("ml/web", "8c2f", "gpus", "77aa", ("0000:04:00.5",), gpus=("0000:1b:00.0", "0000:43:00.0"))


def test_what_is_written_is_read() -> None:
    """Equal sets give equal texts, so that a check which finds the same changes no file."""
    assert read_without_devices(dump_without_devices([ONE, OTHER, THIRD])) == {ONE, OTHER, THIRD}
    assert dump_without_devices([ONE, OTHER]) == dump_without_devices([OTHER, ONE])
    assert read_without_devices(dump_without_devices([])) == frozenset()


def test_it_is_said_whose_devices_a_container_lacks() -> None:
    """Of VFs, of GPUs, or of both."""
    assert ONE.summary == "VF 0000:04:00.5"
    assert THIRD.summary == "VF 0000:04:00.5; GPU 0000:1b:00.0, 0000:43:00.0"
    assert WithoutDevices("ml/web", "8c2f", "gpus", "77aa", (), gpus=("0000:1b:00.0",)).summary == "GPU 0000:1b:00.0"


def test_a_field_of_a_newer_shim_is_ignored() -> None:
    """The programs may be of different versions."""
    document = json.loads(dump_without_devices([ONE]))
    document["containers"][0]["since"] = 7
    assert read_without_devices(json.dumps(document | {"more": 1})) == {ONE}


def test_however_many_there_are_the_report_can_be_read() -> None:
    """Of the longest names it names a hundred."""
    vfs = tuple(f"0000:04:{device:02x}.{function}" for device in range(8) for function in range(8))
    many = [
        WithoutDevices("p" * 317, "u" * 63, "c" * 63, f"{number:064x}", vfs, stopped=True, gpus=vfs)
        for number in range(5000)
    ]
    text = dump_without_devices(many)
    assert len(text.encode()) < MAX_BYTES
    assert len(read_without_devices(text)) == 100


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"v":2,"containers":[]}', '{"v":1}', '{"v":1,"containers":[{}]}', '{"v":1,"containers":1}']
)
def test_what_is_not_a_report_is_refused(text: str) -> None:
    """With one kind of error."""
    with pytest.raises(RecordError):
        read_without_devices(text)
