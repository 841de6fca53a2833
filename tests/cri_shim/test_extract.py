"""Which pods the advertiser sees as those that are to run here: recorded ones, until their sandbox is stopped."""

import os
from pathlib import Path
from typing import Any

import pytest
from cri_api.v1 import api_pb2 as full

from cni.server.extracts import make_folders
from cri_shim.devices.device_nodes import Roots
from cri_shim.interceptors import Interceptors
from cri_shim.plan.inject import Rules
from cri_shim.records import Records
from mooring.records import extract, runtime_handlers


@pytest.fixture
def interceptors(host: Path, rules: Rules) -> Interceptors:
    make_folders(host / "run")
    return Interceptors(rules, Records(host / "state", host / "run"), Roots(host / "sys", host / "dev"))


async def passed(context: Any) -> bytes:
    async with context as raw:
        return bytes(raw)


def stop(sandbox: str) -> bytes:
    return bytes(full.StopPodSandboxRequest(pod_sandbox_id=sandbox).SerializeToString())


async def start(interceptors: Interceptors, host: Path, make: Any) -> Path:
    """Start a pod with two VFs; return the path of its extract."""
    await passed(interceptors.run_pod_sandbox(make.run(make.annotations)))
    for pci in (make.first, make.second):
        make.write_entry(host / "state", pci)
    await passed(interceptors.create_container(make.create(make.annotations)))
    return host / "run" / extract.PODS / f"{make.uid}.json"


async def test_a_pod_is_shown_from_its_record_on_until_its_sandbox_is_stopped(
    interceptors: Interceptors, host: Path, make: Any
) -> None:
    """The request goes on byte for byte; the record stays, for the CNI plugin and a new sandbox."""
    shown = await start(interceptors, host, make)
    assert shown.read_text() == (host / f"state/pods/{make.uid}.json").read_text()
    assert await passed(interceptors.stop_pod_sandbox(stop(make.sandbox))) == stop(make.sandbox)
    assert not shown.exists()
    assert (host / f"state/pods/{make.uid}.json").exists()
    await passed(interceptors.run_pod_sandbox(make.run(make.annotations)))
    assert shown.exists()


def test_the_handlers_whose_pods_get_vfs_are_shown_where_there_is_a_place_for_it(
    interceptors: Interceptors, host: Path, rules: Rules
) -> None:
    """The CNI server makes the folder, and may start later: the shim tries again with each list of sandboxes."""
    interceptors.show_handlers()
    shown = host / "run" / runtime_handlers.NAME
    assert runtime_handlers.read_runtime_handlers(shown.read_text()) == rules.runtime_handlers
    before = shown.stat().st_ino
    interceptors.show_handlers()
    assert shown.stat().st_ino == before
    nowhere = Interceptors(rules, Records(host / "state", host / "later"), Roots(host / "sys", host / "dev"))
    nowhere.show_handlers()
    assert not (host / "later").exists()


async def test_an_older_sandbox_that_is_stopped_hides_nothing(
    interceptors: Interceptors, host: Path, make: Any
) -> None:
    """The kubelet stops an old sandbox again before it removes it, while the pod runs in a new one."""
    shown = await start(interceptors, host, make)
    interceptors.update_sandboxes({"older": make.uid})
    for sandbox in ("older", "of another pod"):
        assert await passed(interceptors.stop_pod_sandbox(stop(sandbox))) == stop(sandbox)
    assert await passed(interceptors.stop_pod_sandbox(b"\xff")) == b"\xff"
    assert shown.exists()


async def test_a_restarted_shim_knows_the_sandboxes_that_are_listed(
    interceptors: Interceptors, host: Path, rules: Rules, make: Any
) -> None:
    """It has seen none of their containers made."""
    shown = await start(interceptors, host, make)
    again = Interceptors(rules, Records(host / "state", host / "run"), Roots(host / "sys", host / "dev"))
    again.update_sandboxes({make.sandbox: make.uid})
    await passed(again.stop_pod_sandbox(stop(make.sandbox)))
    assert not shown.exists()


async def test_an_extract_that_cannot_be_written_keeps_no_pod_from_starting(
    interceptors: Interceptors, host: Path, make: Any
) -> None:
    """It is for the inventory only; the record is what the node works by."""
    (host / "run" / extract.PODS / f"{make.uid}.json").symlink_to("nowhere/at/all")
    temporary = host / "run" / extract.PODS / f".{make.uid}.json.{os.getpid()}.tmp"
    temporary.mkdir()
    await passed(interceptors.run_pod_sandbox(make.run(make.annotations)))
    assert (host / f"state/pods/{make.uid}.json").exists()
