"""The interceptors on their own: records on disk, tripwires, and requests that somebody has broken."""

import asyncio
import json
import random
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from cri_api.v1 import api_pb2 as full

from cri_shim.devices.device_nodes import Roots
from cri_shim.interceptors import Interceptors
from cri_shim.plan.inject import Rules
from cri_shim.plan.record_gc import LIST_INTERVAL_S
from cri_shim.proxy.proxy import RefusedError
from cri_shim.records import Records
from mooring.records.pod_record import PodRecord
from tests.support.foreign import FOREIGN, litter

FUZZ = 3000


@pytest.fixture
def state(host: Path) -> Path:
    return host / "state"


@pytest.fixture
def interceptors(host: Path, rules: Rules, state: Path) -> Interceptors:
    return Interceptors(rules, Records(state, host / "run"), Roots(host / "sys", host / "dev"))


async def forwarded(context: Any) -> bytes:
    async with context as raw:
        return bytes(raw)


async def test_the_record_is_on_disk_before_the_request_is_forwarded(
    interceptors: Interceptors, state: Path, make: Any
) -> None:
    """The CNI plugin reads it while the runtime still makes the sandbox."""
    async with interceptors.run_pod_sandbox(make.run(make.annotations)) as raw:
        assert raw == make.run(make.annotations)
        record = json.loads((state / f"pods/{make.uid}.json").read_text())
    assert (record["pod"], record["assignment"]["vfs"]) == ("ml/web", make.assignment["vfs"])


def container_with(capabilities: Any = None, *, privileged: bool = False) -> dict[str, Any]:
    """Return a field of a container's configuration: its security context."""
    context = full.LinuxContainerSecurityContext(
        privileged=privileged, capabilities=full.Capability(**capabilities or {})
    )
    return {"linux": full.LinuxContainerConfig(security_context=context)}


@pytest.mark.parametrize(
    ("container", "stays"),
    [
        (container_with(), True),
        (container_with({"add_capabilities": ["NET_RAW", "IPC_LOCK"]}), True),
        (container_with({"drop_capabilities": ["ALL"]}), True),
        (container_with(privileged=True), False),
        (container_with({"add_capabilities": ["IPC_LOCK", "NET_ADMIN"]}), False),
        (container_with({"add_capabilities": ["cap_sys_admin"]}), False),
        (container_with({"add_capabilities": ["BPF"]}), False),
        (container_with({"add_capabilities": ["ALL"]}), False),
        (container_with({"add_ambient_capabilities": ["CAP_NET_ADMIN"]}), False),
    ],
)
@pytest.mark.parametrize("name", ["trainer", "debugger-x7k2p"])
async def test_a_container_that_can_change_vfs_is_noted_before_it_is_made(
    interceptors: Interceptors, state: Path, host: Path, make: Any, container: dict[str, Any], stays: bool, name: str
) -> None:
    """The note of a pod without such containers is gone for good, whichever came; ephemeral ones are no exception."""
    await forwarded(interceptors.run_pod_sandbox(make.run(make.annotations)))
    note = state / f"pods/{make.uid}.unprivileged"
    assert note.exists()
    for pci in (make.first, make.second):
        make.write_entry(host / "state", pci)
    async with interceptors.create_container(make.create(make.annotations, name, **container)):
        assert note.exists() == stays
    await forwarded(interceptors.create_container(make.create(make.annotations)))
    await forwarded(interceptors.run_pod_sandbox(make.run(make.annotations)))
    assert note.exists() == stays


async def test_a_note_that_cannot_be_removed_refuses_the_container(
    interceptors: Interceptors, state: Path, host: Path, make: Any
) -> None:
    """The CNI plugin would believe it, and leave the next pod what this one did."""
    await forwarded(interceptors.run_pod_sandbox(make.run(make.annotations)))
    for pci in (make.first, make.second):
        make.write_entry(host / "state", pci)
    note = state / f"pods/{make.uid}.unprivileged"
    note.unlink()
    note.mkdir()
    with pytest.raises(RefusedError, match="unprivileged"):
        await forwarded(interceptors.create_container(make.create(make.annotations, **container_with(privileged=True))))


async def test_a_capability_of_any_bytes_hides_no_other(
    interceptors: Interceptors, state: Path, host: Path, make: Any
) -> None:
    """A request with one is still recognised: nothing is forwarded without its devices."""
    await forwarded(interceptors.run_pod_sandbox(make.run(make.annotations)))
    raw = make.create(make.annotations, **container_with({"add_capabilities": ["ABCD", "NET_ADMIN"]}))
    for pci in (make.first, make.second):
        make.write_entry(host / "state", pci)
    await forwarded(interceptors.create_container(raw.replace(b"ABCD", b"\xff\xfe\x80A")))
    assert not (state / f"pods/{make.uid}.unprivileged").exists()


async def test_a_pod_without_vfs_leaves_no_trace(interceptors: Interceptors, state: Path, make: Any) -> None:
    """The request is forwarded byte for byte, and nothing is written."""
    for raw in (make.run({"a": "b"}), make.run()):
        assert await forwarded(interceptors.run_pod_sandbox(raw)) == raw
    raw = make.create({"a": "b"})
    assert await forwarded(interceptors.create_container(raw)) == raw
    assert not state.exists()


async def test_a_record_that_cannot_be_read_refuses_the_sandbox(
    interceptors: Interceptors, state: Path, make: Any
) -> None:
    """The sandbox is refused whatever the annotations have: that pod had VFs."""
    (state / "pods").mkdir(parents=True)
    (state / f"pods/{make.uid}.json").write_text("{")
    with pytest.raises(RefusedError, match="mooring: pod ml/web: record"):
        await forwarded(interceptors.run_pod_sandbox(make.run()))


async def test_a_record_that_cannot_be_written_refuses_the_sandbox(
    interceptors: Interceptors, state: Path, make: Any
) -> None:
    """Without a record the CNI plugin could not know what to apply."""
    state.write_text("a file where the folder should be")
    with pytest.raises(RefusedError, match="mooring: pod ml/web: "):
        await forwarded(interceptors.run_pod_sandbox(make.run(make.annotations)))


async def test_missing_devices_refuse_the_container_by_vf(interceptors: Interceptors, host: Path, make: Any) -> None:
    """A container never starts without its devices; the error names the VF."""
    await forwarded(interceptors.run_pod_sandbox(make.run(make.annotations)))
    for pci in (make.first, make.second):
        make.write_entry(host / "state", pci)
    (host / "dev/infiniband/uverbs4").unlink()
    with pytest.raises(RefusedError, match=f"VF {make.second}: .*uverbs4: No such file"):
        await forwarded(interceptors.create_container(make.create(make.annotations)))
    raw = make.create(make.annotations, "sidecar")
    assert (await forwarded(interceptors.create_container(raw))).startswith(raw)


async def test_a_container_entitled_to_nothing_passes_behind_the_tripwire(
    interceptors: Interceptors, host: Path, make: Any
) -> None:
    """The ledger is read for the whole pod, also for those containers that get no device."""
    annotations = make.annotations_with(vfs=[vf | {"containers": ["trainer"]} for vf in make.assignment["vfs"]])
    del annotations["mooring.dev/interfaces"]
    await forwarded(interceptors.run_pod_sandbox(make.run(annotations)))
    raw = make.create(annotations, "sidecar")
    with pytest.raises(RefusedError, match="is not in the ledger"):
        await forwarded(interceptors.create_container(raw))
    for pci in (make.first, make.second):
        make.write_entry(host / "state", pci)
    assert await forwarded(interceptors.create_container(raw)) == raw


@dataclass(frozen=True, slots=True)
class SlowDisk(Records):
    """Records on a slow disk: a write ends when the test lets it."""

    writing: threading.Event = field(default_factory=threading.Event)
    ready: threading.Event = field(default_factory=threading.Event)

    def write_pod(self, record: PodRecord) -> bool:
        self._wait()
        return Records.write_pod(self, record)

    def remove_pod(self, uid: str) -> bool:
        self._wait()
        return Records.remove_pod(self, uid)

    def _wait(self) -> None:
        self.writing.set()
        assert self.ready.wait(90)


async def test_two_sandboxes_of_one_pod_at_once_agree_on_one_record(
    rules: Rules, state: Path, host: Path, make: Any
) -> None:
    """The second one must agree with what the first is still writing; other pods do not wait for it."""
    disk = SlowDisk(state, host / "run")
    interceptors = Interceptors(rules, disk, Roots(host / "sys", host / "dev"))
    other = make.annotations_with(vfs=list(reversed(make.assignment["vfs"])))
    del other["mooring.dev/interfaces"]
    first = asyncio.create_task(forwarded(interceptors.run_pod_sandbox(make.run(make.annotations))))
    assert await asyncio.to_thread(disk.writing.wait, 90)
    second = asyncio.create_task(forwarded(interceptors.run_pod_sandbox(make.run(other))))
    for raw in (make.run(uid="somebody-else"), make.create()):
        enter = interceptors.create_container if raw == make.create() else interceptors.run_pod_sandbox
        assert await forwarded(enter(raw)) == raw
    assert not first.done()
    disk.ready.set()
    outcomes = await asyncio.gather(first, second, return_exceptions=True)
    assert [isinstance(outcome, RefusedError) for outcome in outcomes] == [False, True]
    assert json.loads((state / f"pods/{make.uid}.json").read_text())["assignment"] == make.assignment


async def test_two_shims_agree_on_one_record(rules: Rules, state: Path, host: Path, make: Any) -> None:
    """While one takes over from another both have calls: the second to write finds the first one's record."""
    disk = SlowDisk(state, host / "run")
    old = Interceptors(rules, disk, Roots(host / "sys", host / "dev"))
    new = Interceptors(rules, Records(state, host / "run"), Roots(host / "sys", host / "dev"))
    other = make.annotations_with(vfs=list(reversed(make.assignment["vfs"])))
    del other["mooring.dev/interfaces"]
    late = asyncio.create_task(forwarded(old.run_pod_sandbox(make.run(other))))
    assert await asyncio.to_thread(disk.writing.wait, 90)
    await forwarded(new.run_pod_sandbox(make.run(make.annotations)))
    (state / f"pods/{make.uid}.unprivileged").unlink()
    disk.ready.set()
    with pytest.raises(RefusedError, match="differs from the assignment recorded"):
        await late
    assert json.loads((state / f"pods/{make.uid}.json").read_text())["assignment"] == make.assignment
    assert not (state / f"pods/{make.uid}.unprivileged").exists()


async def test_a_record_stays_while_another_shim_makes_its_sandbox(
    interceptors: Interceptors, rules: Rules, state: Path, host: Path, make: Any
) -> None:
    """The shim that collects stale records does not know of that call: the call's mark tells it."""
    new = Interceptors(rules, Records(state, host / "run"), Roots(host / "sys", host / "dev"))
    async with interceptors.run_pod_sandbox(make.run(make.annotations)):
        assert await new.collect_records(frozenset(), 0.0) == frozenset()
        assert await new.collect_records(frozenset(), LIST_INTERVAL_S) == frozenset()
    assert await new.collect_records(frozenset(), 2 * LIST_INTERVAL_S) == frozenset()
    assert await new.collect_records(frozenset(), 3 * LIST_INTERVAL_S) == {make.uid}
    assert not list((state / "pods").iterdir())


async def test_a_caller_that_leaves_while_the_record_is_written_lets_nobody_in(
    rules: Rules, state: Path, host: Path, make: Any
) -> None:
    """A kubelet's deadline may pass during the write; its next try waits for what the disk still does."""
    disk = SlowDisk(state, host / "run")
    interceptors = Interceptors(rules, disk, Roots(host / "sys", host / "dev"))
    first = asyncio.create_task(forwarded(interceptors.run_pod_sandbox(make.run(make.annotations))))
    assert await asyncio.to_thread(disk.writing.wait, 90)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    disk.writing.clear()
    other = make.annotations_with(vfs=list(reversed(make.assignment["vfs"])))
    second = asyncio.create_task(forwarded(interceptors.run_pod_sandbox(make.run(other))))
    assert not await asyncio.to_thread(disk.writing.wait, 0.2)
    disk.ready.set()
    with pytest.raises(RefusedError, match="differs from the assignment recorded"):
        await second
    assert json.loads((state / f"pods/{make.uid}.json").read_text())["assignment"] == make.assignment


async def test_a_file_that_is_not_a_record_does_not_stop_the_collection(
    interceptors: Interceptors, state: Path, make: Any
) -> None:
    """A file of another program stays, and the records beside it are removed when they are due."""
    await forwarded(interceptors.run_pod_sandbox(make.run(make.annotations)))
    (state / "pods/copy of a record.json").write_text("{}")
    assert await interceptors.collect_records(frozenset(), 0.0) == frozenset()
    assert await interceptors.collect_records(frozenset(), LIST_INTERVAL_S) == {make.uid}
    assert [path.name for path in (state / "pods").iterdir()] == ["copy of a record.json"]


async def test_an_annotation_of_any_bytes_hides_no_other(interceptors: Interceptors, state: Path, make: Any) -> None:
    """The API server and Go's CRI pass on values that are not UTF-8: the request is still recognised."""
    placeholder = make.annotations | {"note": "ABCD"}
    raw = make.run(placeholder).replace(b"ABCD", b"\xff\xfe\x80A")
    assert await forwarded(interceptors.run_pod_sandbox(raw)) == raw
    assert (state / f"pods/{make.uid}.json").exists()
    with pytest.raises(RefusedError, match="is not in the ledger"):
        await forwarded(interceptors.create_container(make.create(placeholder).replace(b"ABCD", b"\xff\xfe\x80A")))


async def test_a_collection_on_a_slow_disk_holds_nobody_up(
    interceptors: Interceptors, rules: Rules, state: Path, host: Path, make: Any
) -> None:
    """All calls go on meanwhile, but those of the very pod: its sandbox gets a record again."""
    await forwarded(interceptors.run_pod_sandbox(make.run(make.annotations)))
    disk = SlowDisk(state, host / "run")
    interceptors = Interceptors(rules, disk, Roots(host / "sys", host / "dev"))
    assert await interceptors.collect_records(frozenset(), 0.0) == frozenset()
    collecting = asyncio.create_task(interceptors.collect_records(frozenset(), LIST_INTERVAL_S))
    assert await asyncio.to_thread(disk.writing.wait, 90)
    again = asyncio.create_task(forwarded(interceptors.run_pod_sandbox(make.run(make.annotations))))
    assert await forwarded(interceptors.run_pod_sandbox(make.run(uid="other"))) == make.run(uid="other")
    assert (collecting.done(), again.done()) == (False, False)
    disk.ready.set()
    assert await collecting == {make.uid}
    await again
    assert (state / f"pods/{make.uid}.json").exists()


async def test_the_collection_spares_pods_that_are_listed_or_being_made(
    interceptors: Interceptors, state: Path, make: Any
) -> None:
    """A record is removed at the second list, and not while its sandbox is on its way."""
    record = state / f"pods/{make.uid}.json"
    async with interceptors.run_pod_sandbox(make.run(make.annotations)):
        assert (
            await interceptors.collect_records(frozenset(), 0.0)
            == await interceptors.collect_records(frozenset(), LIST_INTERVAL_S)
            == frozenset()
        )
    assert await interceptors.collect_records(frozenset(), LIST_INTERVAL_S) == frozenset()
    await forwarded(interceptors.run_pod_sandbox(make.run(make.annotations)))
    assert await interceptors.collect_records(frozenset(), 2 * LIST_INTERVAL_S) == frozenset()
    assert await interceptors.collect_records(frozenset({make.uid}), 3 * LIST_INTERVAL_S) == frozenset()
    assert await interceptors.collect_records(frozenset(), 4 * LIST_INTERVAL_S) == frozenset()
    assert record.exists()
    assert await interceptors.collect_records(frozenset(), 5 * LIST_INTERVAL_S) == {make.uid}
    assert not record.exists()


def mutated(raw: bytes, chance: random.Random) -> bytes:
    """Break a request as a faulty peer might: flip mostly, for lengths stay right then; cut, insert, repeat."""
    data = bytearray(raw)
    for _ in range(chance.randint(1, 3)):
        place = chance.randrange(len(data))
        match chance.randrange(9):
            case 0:
                del data[place:]
            case 1:
                data[place:place] = chance.randbytes(chance.randint(1, 9))
            case 2:
                data += data[place : place + 20]
            case _:
                data[place] = chance.randrange(32, 127)
        data = data or bytearray(b"x")
    return bytes(data)


def readable(kind: Any, raw: bytes) -> bool:
    try:
        kind.FromString(raw)
    except Exception:  # noqa: BLE001 - DecodeError of either implementation of protobuf
        return False
    return True


async def test_broken_requests_pass_unchanged_or_are_refused(
    interceptors: Interceptors, state: Path, make: Any
) -> None:
    """What CRI's own decoder rejects is passed bit by bit; nothing else than a refusal is ever raised."""
    chance = random.Random(7)
    counted = {"unreadable": 0, "refused": 0, "passed": 0}
    for _ in range(FUZZ):
        for kind, enter, raw in (
            (full.RunPodSandboxRequest, interceptors.run_pod_sandbox, make.run(make.annotations)),
            (full.CreateContainerRequest, interceptors.create_container, make.create(make.annotations)),
        ):
            broken = mutated(raw, chance)
            try:
                result = await forwarded(enter(broken))
            except RefusedError:
                counted["refused"] += 1
                continue
            assert result == broken
            counted["unreadable" if not readable(kind, broken) else "passed"] += 1
        for record in (state / "pods").glob("*.json"):
            record.unlink()
    assert min(counted.values()) > FUZZ // 50, counted


async def test_broken_assignments_are_refused(interceptors: Interceptors, state: Path, make: Any) -> None:
    """A mutated assignment is refused, or still means the same."""
    chance = random.Random(8)
    text = make.annotations["mooring.dev/assignment"]
    refusals: list[str] = []
    for _ in range(FUZZ):
        broken = mutated(text.encode(), chance).decode("utf-8", "replace")
        raw = make.run(make.annotations | {"mooring.dev/assignment": broken})
        try:
            assert await forwarded(interceptors.run_pod_sandbox(raw)) == raw
        except RefusedError as refusal:
            refusals.append(str(refusal))
        for record in (state / "pods").glob("*.json"):
            written = json.loads(record.read_text())["assignment"]
            assert (written["uid"], written["node"]) == (make.uid, make.node)
            assert len(written["vfs"]) == 2
            record.unlink()
    assert all(reason.startswith("mooring: pod ml/web: ") for reason in refusals)
    assert len(refusals) > FUZZ * 0.8


@pytest.mark.root
@pytest.mark.parametrize("kind", FOREIGN)
async def test_what_lies_in_the_place_of_a_record_keeps_no_pod_without_vfs(
    interceptors: Interceptors, state: Path, make: Any, kind: str
) -> None:
    """The shim has not written it: a pod without VFs starts, and one with VFs is recorded in its place."""
    path = state / f"pods/{make.uid}.json"
    path.parent.mkdir(parents=True)
    FOREIGN[kind](path)
    assert await forwarded(interceptors.run_pod_sandbox(make.run({}))) == make.run({})
    call = asyncio.wait_for(forwarded(interceptors.run_pod_sandbox(make.run(make.annotations))), 90)
    if kind == "folder":
        with pytest.raises(RefusedError, match="Is a directory"):
            await call
    else:
        await call
        assert json.loads(path.read_text())["assignment"]["vfs"] == make.assignment["vfs"]


@pytest.mark.root
async def test_records_are_removed_beside_what_is_none(
    interceptors: Interceptors, state: Path, host: Path, make: Any
) -> None:
    """Of a pod that is gone, and marks of its calls: pipes and folders there keep none."""
    litter(host / "run/sandboxes", f"{make.uid}.0123456789abcdef")
    await forwarded(interceptors.run_pod_sandbox(make.run(make.annotations)))
    left = litter(state / "pods", "u9.json")
    assert await interceptors.collect_records(frozenset(), 0.0) == frozenset()
    assert await interceptors.collect_records(frozenset(), LIST_INTERVAL_S) == {make.uid}
    assert {path.name for path in (state / "pods").iterdir()} == {path.name for path in left}
