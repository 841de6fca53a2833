"""Each forwarded RunPodSandbox of a pod with a record is marked until its call ends, whatever ends that."""

import asyncio
import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from cri_shim.devices.device_nodes import Roots
from cri_shim.interceptors import Interceptors
from cri_shim.plan.inject import Rules
from cri_shim.proxy.proxy import RefusedError
from cri_shim.records import Records
from mooring.records.sandbox_marks import FOLDER, claim


@pytest.fixture
def interceptors(host: Path, rules: Rules) -> Interceptors:
    return Interceptors(rules, Records(host / "state", host / "run"), Roots(host / "sys", host / "dev"))


def marks(host: Path) -> Sequence[str]:
    return [path.name for path in (host / "run" / FOLDER).iterdir()] if (host / "run" / FOLDER).exists() else []


async def test_a_call_is_marked_while_it_is_forwarded(interceptors: Interceptors, host: Path, make: Any) -> None:
    """Of the first sandbox and of each later one, which the record alone would let pass."""
    for container in ("box1", "box2"):
        async with interceptors.run_pod_sandbox(make.run(make.annotations)):
            assert claim(host / "run", make.uid, container) == "granted"
        assert marks(host) == []
    async with interceptors.run_pod_sandbox(make.run()):
        assert claim(host / "run", make.uid, "box3") == "granted"


async def test_a_pod_without_a_record_and_a_refused_one_have_no_mark(
    interceptors: Interceptors, host: Path, make: Any
) -> None:
    """There is nothing that an ADD could take by it."""
    async with interceptors.run_pod_sandbox(make.run({"a": "b"}, uid="other")):
        assert marks(host) == []
    with pytest.raises(RefusedError):
        await interceptors.run_pod_sandbox(make.run(make.annotations_with(node="n2"))).__aenter__()
    assert marks(host) == []


async def test_a_mark_that_cannot_be_written_refuses_the_sandbox(
    interceptors: Interceptors, host: Path, make: Any
) -> None:
    """Its ADD would be refused; the shim says so at once."""
    (host / "run").write_text("a file where the folder should be")
    with pytest.raises(RefusedError, match="mooring: pod ml/web: "):
        await interceptors.run_pod_sandbox(make.run(make.annotations)).__aenter__()


@pytest.mark.parametrize("ends", [ValueError, asyncio.CancelledError])
async def test_a_call_that_fails_or_is_given_up_leaves_no_mark(
    interceptors: Interceptors, host: Path, make: Any, ends: type[BaseException]
) -> None:
    """The kubelet's deadline cancels it; the runtime may go on with the sandbox, and its ADD is then of no call."""
    with contextlib.suppress(ends):
        async with interceptors.run_pod_sandbox(make.run(make.annotations)):
            raise ends
    assert claim(host / "run", make.uid, "box1") == "none"


async def test_a_retry_beside_a_call_that_was_given_up_serves_the_sandbox_under_way(
    interceptors: Interceptors, host: Path, make: Any
) -> None:
    """CRI-O goes on with a sandbox whose call has timed out, and answers the next call for it by that one."""
    async with interceptors.run_pod_sandbox(make.run(make.annotations)):
        pass
    async with interceptors.run_pod_sandbox(make.run(make.annotations)):
        assert claim(host / "run", make.uid, "of-the-first-call") == "granted"
