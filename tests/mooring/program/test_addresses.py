"""Addresses of the command line: host and port, the same for every program."""

import pytest

from mooring.program.config import ConfigError, host_and_port


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("127.0.0.1:9000", ("127.0.0.1", 9000)),
        ("localhost:0", ("localhost", 0)),
        (":54005", (None, 54005)),
        ("[::1]:65535", ("::1", 65535)),
        ("[::]:80", ("::", 80)),
    ],
)
def test_an_address_is_a_host_and_a_port(text: str, found: tuple[str | None, int]) -> None:
    """An address without a host means all addresses."""
    assert host_and_port(text) == found


@pytest.mark.parametrize("text", ["", "localhost", "9000", "localhost:", "a:b", ":65536", ":-1", ":٣"])
def test_what_is_none_is_refused_by_name(text: str) -> None:
    """A malformed address is refused before anything listens."""
    with pytest.raises(ConfigError, match="is not host:port"):
        host_and_port(text)
