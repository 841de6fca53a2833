"""A constraint's units travel on unchanged: from the Binding through the shim to the CNI plugin."""

import json
from dataclasses import replace

import pytest
from msgspec import structs

from cni.plan.attachment import record_to_apply
from cni.spec.conf import Conf, read_conf
from cni.spec.skel import Call, CniError, read_call
from cri_shim.pb import cri_pb2 as cri
from cri_shim.plan.inject import Pass, Record, Refuse, Rules, decide_container, decide_sandbox
from mooring.annotations.assignment import dump_assignment, read_assignment
from mooring.records.pod_record import PodRecord, dump_pod_record, pod_record_name, read_pod_record
from scheduler.constraints.kinds import Kinds
from scheduler.cycle.decisions import Bind
from tests.scheduler.constraints.conftest import StartLife
from tests.scheduler.constraints.life import Life
from tests.scheduler.group_life import as_bound

RULES = Rules("n1")


@pytest.fixture
def life(licences: Kinds, start_life: StartLife) -> Life:
    life = start_life(licences)
    life.show_node("n1", life.make_pf(), licence='{"v":1,"cad":2}')
    return life


def _bind(life: Life, request: object) -> Bind:
    """Bind a pod with a licence, and with interfaces or without."""
    found = life.outcome(life.asking(request=request, licence='{"name":"cad","count":1}'))
    assert isinstance(found, Bind)
    return found


def _config(bind: Bind) -> cri.PodSandboxConfig:
    metadata = cri.PodSandboxMetadata(name="p", namespace="default", uid=bind.pod_info.uid)
    encoded = {key: value.encode() for key, value in as_bound(bind).annotations.items()}
    return cri.PodSandboxConfig(metadata=metadata, annotations=encoded)


def _recorded(bind: Bind) -> PodRecord:
    decided = decide_sandbox(cri.RunPodSandboxRequest(config=_config(bind)), None, RULES)
    assert isinstance(decided, Record)
    return read_pod_record(dump_pod_record(decided.record), pod_record_name(bind.pod_info.uid))


def _call(bind: Bind) -> tuple[Call, Conf]:
    arguments = f"K8S_POD_NAMESPACE=default;K8S_POD_NAME=p;K8S_POD_UID={bind.pod_info.uid}"
    environment = {"CNI_COMMAND": "ADD", "CNI_CONTAINERID": "c1", "CNI_NETNS": "/run/netns/p", "CNI_IFNAME": "eth0"}
    raw = {"cniVersion": "1.0.0", "name": "net", "type": "mooring-cni"}
    call = read_call({**environment, "CNI_ARGS": arguments, "CNI_PATH": "/opt/cni/bin"}, json.dumps(raw).encode())
    given = {"io.kubernetes.cri.pod-annotations": dict(bind.annotations)}
    return call, read_conf(call, raw | {"runtimeConfig": given}, "1.0.0")


def test_the_pod_record_and_the_cni_call_carry_the_units_and_no_others(life: Life) -> None:
    """The record holds them as the scheduler wrote them; shim and CNI plugin refuse another unit."""
    made = _bind(life, [{}])
    record = _recorded(made)
    assert record.assignment.ext == {"licence": {"units": ["cad/0"]}}
    assert record_to_apply(*_call(made), record) == record
    forged = replace(read_assignment(made.annotations["mooring.dev/assignment"]), ext={"licence": {"units": ["cad/1"]}})
    other = structs.replace(made, annotations={"mooring.dev/assignment": dump_assignment(forged)})
    assert isinstance(decide_sandbox(cri.RunPodSandboxRequest(config=_config(other)), record, RULES), Refuse)
    with pytest.raises(CniError, match="differs from the one recorded"):
        record_to_apply(*_call(other), record)


def test_a_pod_without_vfs_is_recorded_and_gets_no_device(life: Life) -> None:
    """Its containers' requests pass unchanged: the shim does not interpret units."""
    made = _bind(life, None)
    record = _recorded(made)
    assert (record.assignment.vfs, record.assignment.ext) == ((), {"licence": {"units": ["cad/0"]}})
    assert made.why["ext"] == record.assignment.ext
    request = cri.CreateContainerRequest(sandbox_config=_config(made))
    assert decide_container(request, record, RULES) == Pass()
