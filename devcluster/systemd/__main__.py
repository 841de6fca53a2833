"""``python -m devcluster.systemd``: process 1 of a simulated host, a stand-in for systemd.

It starts the services that the host's unit files enable, executes commands of `systemctl`, reaps processes whose parent
has ended, and stops everything at SIGTERM.
"""

import asyncio
import contextlib
import json
import os
import signal
import sys

import structlog

from devcluster.systemd import systemctl
from devcluster.systemd.services import Services, UnitError
from mooring.program.log import set_up

_log = structlog.get_logger()
# How often processes without a parent are looked for, in seconds.
_REAP_S = 1.0
# A unit that reloads by another process (MAINPID=) is restarted.
_ACTIONS = {"start": "start", "stop": "stop", "restart": "restart", "try-restart": "try_restart"} | {
    "reload": "try_restart",
    "reload-or-restart": "restart",
}
_SAID_NOTHING = frozenset({"daemon-reload", "try-reload-or-restart", "enable", "disable", "reset-failed"})


async def run() -> None:
    """Boot, and serve `systemctl` until SIGTERM."""
    services, ended = Services(dict(os.environ)), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    systemctl.SOCKET.parent.mkdir(parents=True, exist_ok=True)
    systemctl.SOCKET.unlink(missing_ok=True)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer):
            status, said = await answer(services, json.loads(await reader.readline()))
            writer.write(json.dumps({"status": status, "said": said}).encode())
            await writer.drain()

    reaping = asyncio.create_task(_reap(services))
    await services.start_enabled()
    async with await asyncio.start_unix_server(serve, systemctl.SOCKET):
        _log.info("host is up")
        await ended.wait()
    await services.stop_all()
    reaping.cancel()


async def answer(services: Services, words: list[str]) -> tuple[int, str]:
    """Execute one command of systemctl; return its exit status and output."""
    command, *names = [word for word in words if not word.startswith("-")]
    if command in _SAID_NOTHING:
        return 0, ""
    if command in ("is-active", "status"):
        active = [services.is_active(name) for name in map(_full, names)]
        return 0 if all(active) else 3, "\n".join("active" if one else "inactive" for one in active)
    if command == "is-failed":
        failed = [services.has_failed(name) for name in map(_full, names)]
        return 0 if any(failed) else 1, "\n".join("failed" if one else "inactive" for one in failed)
    if command not in _ACTIONS:
        return 1, f"Unknown command verb {command}."
    try:
        for name in map(_full, names):
            await getattr(services, _ACTIONS[command])(name)
    except (UnitError, OSError) as failed:
        return 5, str(failed)
    return 0, ""


def _full(name: str) -> str:
    return name if "." in name else f"{name}.service"


async def _reap(services: Services) -> None:
    """Reap processes without a parent: containerd's shims leave them to process 1."""
    while True:
        await asyncio.sleep(_REAP_S)
        own = {each.process.pid for each in services.running.values() if each.process is not None}
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
                if ended.si_pid in own:
                    # asyncio waits for that one itself.
                    break
                os.waitpid(ended.si_pid, 0)


def main() -> int:
    set_up("systemd")
    asyncio.run(run())
    return 0


if __name__ == "__main__":
    sys.exit(main())
