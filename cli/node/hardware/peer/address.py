"""Where the two hosts of a test meet: the address to listen on, and the command for the other host."""

import socket
from collections.abc import Iterator

from cli.node.hardware.commands import CommandError, run_json
from mooring.program.config import ConfigError, host_and_port

_MOST_SHOWN = 4


def listening(address: str) -> socket.socket:
    """Listen on HOST:PORT; raise ConfigError or OSError."""
    host, port = host_and_port(address)
    if host is not None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family)
    if socket.has_dualstack_ipv6():
        return socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server(("", port))


def peer_address(address: str) -> tuple[str, int]:
    """Return the host and port of --peer; raise ConfigError."""
    host, port = host_and_port(address)
    if host is None or not port:
        raise ConfigError(f"option peer: {address!r} is not the host:port that --serve printed")
    return host, port


def how_to_reach(listener: socket.socket, token: str) -> Iterator[str]:
    """Yield what a person needs on the other host: the addresses, the token and the command."""
    host, port = listener.getsockname()[:2]
    hosts = [host] if host not in ("::", "0.0.0.0") else _own_addresses()[:_MOST_SHOWN] or ["ADDRESS"]
    shown = [f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host in hosts]
    yield f"address {', '.join(shown)}"
    yield f"token   {token}"
    yield f"on the other host: mooring-node hardware-test --vfs --traffic --peer {shown[0]} --token {token}"


def _own_addresses() -> list[str]:
    try:
        links = run_json(("ip", "-j", "address", "show", "scope", "global"))
    except CommandError:
        return []
    return [str(each["local"]) for link in links or () for each in link.get("addr_info", ()) if "local" in each]
