"""The record of the kubelet's last call."""

import pytest

from mooring.errors import RecordError
from mooring.records.kubelet_call import LastCall, dump_kubelet_call, read_kubelet_call


def test_the_time_is_read_as_it_was_written() -> None:
    """In milliseconds of the monotonic clock."""
    assert read_kubelet_call(dump_kubelet_call(LastCall(8042.3109))) == LastCall(8042.31)
    assert read_kubelet_call(dump_kubelet_call(LastCall(8042.0, waiting=True))) == LastCall(8042.0, waiting=True)
    assert read_kubelet_call('{"v":1,"at_ms":5,"more":true}') == LastCall(0.005)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"v":1}', '{"v":2,"at_ms":1}', '{"v":1,"at_ms":-1}'])
def test_anything_else_is_refused(text: str) -> None:
    """A reader takes it for no record."""
    with pytest.raises(RecordError):
        read_kubelet_call(text)
