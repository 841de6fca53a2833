"""The attacks on a node's programs are what a tenant can write, and what their names say."""

import json
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from cri_api.v1 import api_pb2 as full

from bench.hostile.attack import ATTACKS
from bench.hostile.attacks import cni_calls, cri_calls
from bench.hostile.calls import ADD, uid
from bench.hostile.node_innocents import container
from bench.hostile.stage import HOST, Stage
from cni.spec.conf import read_conf
from cni.spec.skel import CniError, read_call
from cri_shim.pb import cri_pb2 as cri
from cri_shim.plan.inject import Pass, Record, Refuse, Rules, decide_container, decide_sandbox
from mooring.program.large_work import LARGE_BYTES
from mooring.records.pod_record import read_pod_record

# Those of an API server and its etcd.
_MOST_ANNOTATIONS, _MOST_OBJECT = 262_144, 1_572_864
_MOST_ANSWER = 16 << 20
_NODE = [attack for attack in ATTACKS.values() if attack.run.__module__ in (cri_calls.__name__, cni_calls.__name__)]
_ENVIRONMENT = {"CNI_COMMAND": ADD, "CNI_CONTAINERID": "c", "CNI_NETNS": "/run/netns/x", "CNI_IFNAME": "net1"}


@dataclass(slots=True)
class _Recorder:
    """A node on which nothing happens: it only has what it was called with."""

    calls: list[tuple[str, bytes]] = field(default_factory=list)
    answers: list[bytes] = field(default_factory=list)
    records: list[tuple[str, str]] = field(default_factory=list)

    @asynccontextmanager
    async def called(
        self, _: str, what: str, content: bytes, calls: int = 0, pause_s: float = 0.0
    ) -> AsyncIterator[None]:
        del calls, pause_s
        self.calls.append((what, content))
        yield

    @contextmanager
    def answered(self, _: str, answer: bytes) -> Iterator[None]:
        self.answers.append(answer)
        yield

    @contextmanager
    def host_records(self, records: Iterable[tuple[str, str]]) -> Iterator[None]:
        self.records += records
        yield

    @asynccontextmanager
    async def held(self, _: int) -> AsyncIterator[None]:
        yield

    def vf(self, _: int) -> dict[str, object]:
        return {"pf": "enp4s0f0", "vf": 0, "pci": "0000:04:00.2", "link": "ethernet", "network": "default"}

    async def recorded(self, _: int) -> None:
        """Nothing is written."""

    def check_devices(self) -> None:
        """Nothing runs."""

    def forget(self) -> None:
        """Nothing is kept."""


@dataclass(slots=True)
class _Stage:
    node: _Recorder


async def _carried_out(name: str) -> _Recorder:
    node = _Recorder()
    async with ATTACKS[name].run(cast("Stage", _Stage(node))):
        return node


@pytest.mark.parametrize("name", [attack.name for attack in _NODE])
async def test_what_is_asked_of_a_node_is_what_a_tenant_can_write(name: str) -> None:
    """Within the API server's limits of an object and its annotations, or the runtime's of an answer."""
    node = await _carried_out(name)
    assert node.calls
    for what, content in node.calls:
        if what == "RunPodSandbox":
            _check_annotations(full.RunPodSandboxRequest.FromString(content).config)
        if what == "CreateContainer":
            _check_annotations(full.CreateContainerRequest.FromString(content).sandbox_config)
        if what == ADD:
            assert len(content) <= _MOST_OBJECT
    assert all(len(answer) <= _MOST_ANSWER for answer in node.answers)
    for of, text in node.records:
        assert len(text) <= _MOST_ANNOTATIONS
        assert read_pod_record(text, f"pods/{of}.json").assignment.vfs


def _check_annotations(config: Any) -> None:
    assert sum(len(key) + len(value) for key, value in config.annotations.items()) <= _MOST_ANNOTATIONS
    # Else all pods would have that of one.
    assert config.metadata.uid == uid(0)


async def test_what_is_recorded_is_what_the_shim_would_record() -> None:
    """And a container of such a pod, without any annotation, is small and compared with the record."""
    (_, sandbox), (_, created) = (await _carried_out("shim-records")).calls
    decision = decide_sandbox(cri.RunPodSandboxRequest.FromString(sandbox), None, Rules(HOST))
    assert isinstance(decision, Record)
    assert len(created) < LARGE_BYTES
    again = decide_container(cri.CreateContainerRequest.FromString(created), decision.record, Rules(HOST))
    assert not isinstance(again, Pass | Refuse)


async def test_what_is_to_be_worked_on_at_once_just_is() -> None:
    """The innocent container of a namespace with many services just is not."""
    ((_, request),) = (await _carried_out("shim-at-once")).calls
    ((_, conf),) = (await _carried_out("cni-at-once")).calls
    assert 0.9 * LARGE_BYTES < len(request) <= LARGE_BYTES
    assert 0.9 * LARGE_BYTES < len(conf) <= LARGE_BYTES
    assert LARGE_BYTES < len(container(0, services=80)) < 2 * LARGE_BYTES


@pytest.mark.parametrize("name", ["cni-networks", "cni-routes", "cni-annotations", "cni-previous", "cni-waiting"])
async def test_a_network_that_is_to_be_read_is(name: str) -> None:
    """To its end; what is refused for its first field shows nothing."""
    ((_, content),) = (await _carried_out(name)).calls
    call = read_call(_ENVIRONMENT, content)
    try:
        read_conf(call, dict(call.conf), "1.0.0")
    except CniError as refused:
        pytest.fail(f"{name}: {refused} ({json.dumps(list(call.conf))})")
