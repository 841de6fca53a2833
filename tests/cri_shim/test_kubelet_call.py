"""The shim records when the kubelet last polled the runtime's Status through it."""

import asyncio
from pathlib import Path

import grpc
import pytest

from cri_shim.kubelet_call import KubeletCall
from mooring.records.kubelet_call import NAME, STATUS, LastCall, dump_kubelet_call, read_kubelet_call
from tests.support.polling import wait_until

_OK = grpc.StatusCode.OK


def _recorded(run: Path) -> LastCall:
    return read_kubelet_call((run / NAME).read_text())


async def test_a_poll_is_recorded_and_other_calls_are_not(tmp_path: Path) -> None:
    """Failed or not: it came through. Every call is observed as before."""
    observed: list[str] = []
    (tmp_path / NAME).write_text(dump_kubelet_call(LastCall(0.0)))
    note = KubeletCall(tmp_path).call_recorder(lambda method, *_: observed.append(method))
    note("/runtime.v1.RuntimeService/Version", _OK, 0.1, 0.1)
    assert _recorded(tmp_path) == LastCall(0.0)
    note(STATUS, grpc.StatusCode.UNAVAILABLE, 0.1, 0.1)
    await asyncio.to_thread(wait_until, lambda: _recorded(tmp_path).at_s > 0.0, "the call is recorded")
    assert len(observed) == 2


async def test_a_shim_begins_the_record_of_a_boot(tmp_path: Path) -> None:
    """A check then knows since when it waits for a call, and takes that for none. The first call ends it."""
    note = KubeletCall(tmp_path).call_recorder(lambda *_: None)
    assert (_recorded(tmp_path).at_s > 0.0, _recorded(tmp_path).waiting) == (True, True)
    note(STATUS, _OK, 0.1, 0.1)
    await asyncio.to_thread(wait_until, lambda: not _recorded(tmp_path).waiting, "the call is recorded")


async def test_a_folder_that_cannot_be_written_is_logged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The call itself is not held up."""
    (tmp_path / "file").write_text("")
    note = KubeletCall(tmp_path / "file").call_recorder(lambda *_: None)
    note(STATUS, _OK, 0.1, 0.1)
    said: list[str] = []

    def logged() -> bool:
        said.append("".join(capsys.readouterr()))
        return "cannot record the kubelet's last call" in "".join(said)

    await asyncio.to_thread(wait_until, logged, "the reason is logged")
