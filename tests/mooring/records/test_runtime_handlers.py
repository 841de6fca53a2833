"""The record of the runtime handlers whose pods the CRI shim gives VFs."""

import pytest

from mooring.errors import RecordError
from mooring.records.runtime_handlers import dump_runtime_handlers, read_runtime_handlers


def test_what_is_written_is_read() -> None:
    for handlers in (frozenset[str](), frozenset({"runc"}), frozenset({"runc", "nvidia-cdi"})):
        assert read_runtime_handlers(dump_runtime_handlers(handlers)) == handlers


@pytest.mark.parametrize(
    "text", ["", "{}", '{"v":1}', '{"v":1,"handlers":[3]}', '{"v":1,"handlers":["%s"]}' % ("a" * 64)]
)
def test_a_malformed_record_is_an_error_that_names_it(text: str) -> None:
    with pytest.raises(RecordError, match="runtime-handlers"):
        read_runtime_handlers(text)
