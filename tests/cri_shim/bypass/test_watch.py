"""When the socket becomes a link, and when it does not; what the record says meanwhile."""

import asyncio
import contextlib
import subprocess
import sys
from typing import Any

import pytest

from mooring.records.shim_bypass import NAME
from tests.cri_shim.bypass.conftest import WatchedHost


@pytest.mark.usefixtures("served_runtime")
async def test_a_shim_that_is_not_there_is_bypassed_after_15_s(watched: WatchedHost) -> None:
    """The first start counts too, as after a reboot: the folder of the socket is empty."""
    await watched.look(14)
    assert (watched.is_bypassed(), watched.record) == (False, None)
    await watched.look(1)
    assert watched.is_bypassed()
    assert watched.record is not None
    assert watched.record.why.startswith("mooring-cri-shim has not served for 15 s")


async def test_while_the_runtime_does_not_answer_the_shim_is_not_to_blame(
    watched: WatchedHost, fake_runtime: Any
) -> None:
    """What counts is the time since the runtime answers again."""
    await watched.look(60)
    assert not watched.is_bypassed()
    await fake_runtime.start(watched.paths.runtime)
    await watched.look(14)
    assert not watched.is_bypassed()
    await watched.look(1)
    assert watched.is_bypassed()
    await fake_runtime.stop()


async def test_a_bypass_outlives_its_watch_and_ends_with_the_shim(watched: WatchedHost, served_runtime: Any) -> None:
    """A link that somebody has replaced by a socket that serves is the shim's again; the record goes with it."""
    await watched.look(15)
    began = watched.record
    watched.begin()
    await watched.look(30)
    assert watched.is_bypassed()
    assert watched.record is not None
    assert began is not None
    assert watched.record.since == began.since
    watched.paths.listen.unlink()
    await watched.look(5)
    assert watched.has_record(), "nothing serves there"
    shim = type(served_runtime)()
    await shim.start(watched.paths.listen)
    await watched.look(1)
    assert not watched.has_record()
    await watched.look(60)
    assert not watched.is_bypassed()
    await shim.stop()


async def test_what_lies_in_the_records_place_is_in_nobodys_way(watched: WatchedHost, served_runtime: Any) -> None:
    """It can be neither written nor removed: the node's condition is wrong, and the node goes on."""
    (watched.paths.run / NAME).mkdir(parents=True)
    shim = type(served_runtime)()
    await shim.start(watched.paths.listen)
    for _ in range(6):
        with contextlib.suppress(OSError):
            await watched.look(1)
    await shim.stop()
    await watched.look(15)
    assert watched.is_bypassed()


@pytest.mark.usefixtures("served_runtime")
async def test_where_it_is_turned_off_nothing_is_linked_and_a_link_goes(watched: WatchedHost) -> None:
    await watched.look(15)
    assert watched.is_bypassed()
    watched.begin(never_bypass=True)
    await watched.look(60)
    assert not watched.paths.listen.is_symlink()
    assert not watched.has_record(), "no connection leads past the shim any more"


@pytest.mark.usefixtures("served_runtime")
async def test_what_the_shim_needs_is_not_needed_here(watched: WatchedHost) -> None:
    """Neither its packages nor its configuration: they may be what is broken."""
    script = (
        "import sys; import cri_shim.bypass.__main__; "
        "print(*sorted({n.partition('.')[0] for n in sys.modules} - sys.stdlib_module_names))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert [name for name in done.stdout.split() if not name.startswith("_")] == ["cri_shim", "mooring"]


@pytest.mark.usefixtures("served_runtime")
async def test_a_check_that_fails_is_said(watched: WatchedHost) -> None:
    """Who reads the condition is to know that containers without their devices are not found."""
    watched.begin(check_flags=["--no-such-flag"])
    await watched.look(16)
    async with asyncio.timeout(60):
        while watched.record is None or "missing devices" not in watched.record.why:
            await asyncio.sleep(0.1)
            await watched.look(1)
    assert watched.record.why.endswith("the check for missing devices of restarted containers fails: exit status 2")
