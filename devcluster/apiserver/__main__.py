"""Run the embedded API server: `python -m devcluster.apiserver --port 8001 --kubeconfig FILE`."""

import argparse
import asyncio
import os
import signal
import sys
from pathlib import Path

from devcluster.apiserver.serve import ApiServer, Options


def main() -> int:
    """Serve until SIGTERM or SIGINT; return the exit status."""
    arguments = _parser().parse_args()
    tls = (arguments.tls_cert, arguments.tls_key) if arguments.tls_cert else None
    options = Options(
        arguments.port,
        arguments.listen_netns,
        tls,
        arguments.history,
        rbac=arguments.rbac,
        admission=arguments.admission,
        service=_address(arguments.service) if arguments.service else None,
    )
    try:
        asyncio.run(_serve(options, arguments.kubeconfig))
    except OSError as error:
        sys.stderr.write(f"apiserver: {error}\n")
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m devcluster.apiserver", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="TCP port on loopback, 0 takes a free one (default 0)")
    parser.add_argument("--kubeconfig", type=Path, help="file to write once the server listens (default none)")
    parser.add_argument(
        *("--listen-netns",),
        nargs="+",
        default=[],
        metavar="NETNS",
        help="serve the same loopback port inside these network namespaces too, by name or path (default none)",
    )
    parser.add_argument("--history", type=int, default=50_000, help="changes remembered a kind (default 50000)")
    parser.add_argument(
        *("--rbac",), action="store_true", help="ask RBAC; the kubeconfig has a token (kubectl sends it by HTTPS only)"
    )
    parser.add_argument(
        *("--admission",), action="store_true", help="ask admission policies, and let pods run as service accounts"
    )
    parser.add_argument(
        *("--service",),
        metavar="HOST:PORT",
        help="the service `kubernetes`: served in the namespaces too (default none)",
    )
    parser.add_argument("--tls-cert", help="certificate file, for HTTPS (default: HTTP)")
    parser.add_argument("--tls-key", help="key file of the certificate")
    return parser


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host, int(port)


async def _serve(options: Options, kubeconfig: Path | None) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with ApiServer(options) as server:
        if kubeconfig is not None:
            _write(kubeconfig, server.kubeconfig_text())
        sys.stderr.write(f"apiserver: listening on {server.url}\n")
        await stop.wait()


def _write(path: Path, text: str) -> None:
    """Write a file atomically, so that no reader sees half of it."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(text)
    temporary.rename(path)


if __name__ == "__main__":
    sys.exit(main())
