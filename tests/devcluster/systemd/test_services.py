"""The stand-in for systemd keeps services: readiness, restarts, ends."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from devcluster.systemd import services as module
from devcluster.systemd.__main__ import answer
from devcluster.systemd.services import Services
from tests.support.polling import until

_NOTIFY = (
    "import os, socket, time; s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM); "
    "s.sendto(b'READY=1', os.environ['NOTIFY_SOCKET']); time.sleep(60)"
)


@pytest.fixture
async def services(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Services]:
    """A host's services, with its folders below the test's."""
    monkeypatch.setattr(module, "FOLDER", tmp_path / "units")
    monkeypatch.setattr(module, "JOURNAL", tmp_path / "journal")
    monkeypatch.setattr(module, "NOTIFY", tmp_path / "run")
    (tmp_path / "units/multi-user.target.wants").mkdir(parents=True)
    found = Services({"PATH": "/usr/bin:/bin"})
    yield found
    await found.stop_all()


def _write(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / "units" / name).write_text(text)
    (tmp_path / "units/multi-user.target.wants" / name).symlink_to(f"../{name}")


async def test_enabled_services_are_started_and_ended(services: Services, tmp_path: Path) -> None:
    """A boot starts what the targets want; systemctl reports it, and ends it."""
    _write(tmp_path, "a.service", "ExecStart=sleep 60\n")
    await services.start_enabled()
    assert await answer(services, ["is-active", "a"]) == (0, "active")
    assert await answer(services, ["stop", "a.service"]) == (0, "")
    assert await answer(services, ["is-active", "a.service"]) == (3, "inactive")


async def test_a_service_that_ends_is_started_again(services: Services, tmp_path: Path) -> None:
    """Restart=always starts the service again, but not after a stop."""
    _write(tmp_path, "a.service", f"ExecStart=sh -c 'echo x >>{tmp_path}/runs'\nRestart=always\nRestartSec=20ms\n")
    await services.start("a.service")
    await until(lambda: (tmp_path / "runs").exists() and len((tmp_path / "runs").read_text().split()) > 2)
    await services.stop("a.service")
    assert not services.is_active("a.service")


async def test_after_a_stop_nothing_starts_a_process(services: Services, tmp_path: Path) -> None:
    """A restart may be on its way just then, by the service itself or by its path."""
    _write(tmp_path, "a.service", "ExecStart=true\nRestart=always\nRestartSec=0ms\n")
    _write(tmp_path, "b.path", f"[Path]\nPathExists={tmp_path}\n")
    (tmp_path / "units/b.service").write_text("Type=oneshot\nExecStart=true\n")
    for _ in range(5):
        for name in ("a.service", "b.path"):
            await services.start(name)
        await asyncio.sleep(0.01)
        await services.stop_all()
        assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_start_waits_until_the_service_says_that_it_is_ready(services: Services, tmp_path: Path) -> None:
    """Type=notify: a service that reports readiness is started, one that ends first failed, with systemd's message."""
    (tmp_path / "notify.py").write_text(_NOTIFY)
    _write(tmp_path, "good.service", f"Type=notify\nExecStart=python3 {tmp_path}/notify.py\n")
    _write(tmp_path, "bad.service", "Type=notify\nExecStart=false\n")
    assert await answer(services, ["restart", "good.service"]) == (0, "")
    status, said = await answer(services, ["start", "bad.service"])
    assert (status, "control process exited" in said) == (5, True)


async def test_a_service_has_failed_until_it_ends_well(services: Services, tmp_path: Path) -> None:
    """One that was stopped has not failed, whatever its status."""
    _write(tmp_path, "a.service", f"Type=oneshot\nExecStart=test -e {tmp_path}/good\n")
    _write(tmp_path, "b.service", "ExecStart=sleep 60\n")
    assert await answer(services, ["is-failed", "a"]) == (1, "inactive")
    await services.start("a.service")
    await until(lambda: services.has_failed("a.service"))
    assert await answer(services, ["is-failed", "a.service"]) == (0, "failed")
    (tmp_path / "good").touch()
    await services.start("a.service")
    await until(lambda: not services.has_failed("a.service") and not services.is_active("a.service"))
    await services.start("b.service")
    await services.stop("b.service")
    assert await answer(services, ["is-failed", "b.service"]) == (1, "inactive")


async def test_unknown_units_and_verbs_are_refused(services: Services) -> None:
    """The exit statuses are systemctl's."""
    assert await answer(services, ["start", "nobody"]) == (5, "Unit nobody.service not found.")
    assert (await answer(services, ["mask", "a.service"]))[0] == 1


async def test_a_timer_starts_its_service_again_and_again_until_it_is_stopped(
    services: Services, tmp_path: Path
) -> None:
    """It is active by itself; its service ends in between."""
    _write(tmp_path, "a.timer", "[Timer]\nOnBootSec=10ms\nOnUnitActiveSec=20ms\n")
    (tmp_path / "units/a.service").write_text(f"Type=oneshot\nExecStart=sh -c 'echo x >>{tmp_path}/runs'\n")
    await services.start_enabled()
    assert await answer(services, ["is-active", "a.timer"]) == (0, "active")
    await until(lambda: (tmp_path / "runs").exists() and len((tmp_path / "runs").read_text().split()) > 2)
    assert await answer(services, ["stop", "a.timer", "a.service"]) == (0, "")
    assert await answer(services, ["is-active", "a.timer"]) == (3, "inactive")
    assert (await answer(services, ["start", "b.timer"]))[0] == 5


async def test_a_path_starts_its_service_as_long_as_something_is_there(services: Services, tmp_path: Path) -> None:
    """Also what comes while the service runs; and once for each change of a file."""
    exists, folder, changed = (tmp_path / name for name in ("next", "folder", "changed"))
    watched = f"PathExists={exists}\nDirectoryNotEmpty={folder}\nPathChanged={changed}\n"
    _write(tmp_path, "a.path", f"[Path]\n{watched}")
    run = f"echo x >>{tmp_path}/runs; rm -rf {exists} {folder}/*; sleep 0.3"
    (tmp_path / "units/a.service").write_text(f"Type=oneshot\nExecStart=sh -c '{run}'\n")

    def runs() -> int:
        return len((tmp_path / "runs").read_text().split()) if (tmp_path / "runs").exists() else 0

    folder.mkdir()
    exists.write_text("")
    await services.start_enabled()
    assert await answer(services, ["is-active", "a.path"]) == (0, "active")
    await until(lambda: runs() == 1 and not exists.exists())
    # It runs for some time more.
    (folder / "0000:04:00.0").mkdir()
    await until(lambda: runs() == 2 and not any(folder.iterdir()))
    changed.write_text("")
    await until(lambda: runs() == 3)
    assert await answer(services, ["stop", "a.path", "a.service"]) == (0, "")
    assert await answer(services, ["is-active", "a.path"]) == (3, "inactive")
