"""Installing on a simulated node."""

from collections.abc import Callable

from tests.cli.node.conftest import NodeHost

HostOf = Callable[..., NodeHost]


def run_install(host: NodeHost, name: str = "first", *flags: str, command: str = "install") -> None:
    status, said = host.run(command, "--wheelhouse", str(host.wheelhouse(name)), *flags)
    assert status == 0, said
