"""ADD and DEL of a pod without VFs, whatever is in the place of the records that such a pod does not have."""

import json
from pathlib import Path
from typing import Any

import pytest

from cni.server.dispatch import Answer, answer
from mooring import names
from tests.cni.no_vf_settings import NoVfSettings
from tests.support.foreign import FOREIGN

UID = "8c2f"
PREVIOUS = {"cniVersion": "1.0.0", "interfaces": [{"name": "eth0"}], "ips": []}


def call(command: str, places: dict[str, str], annotations: dict[str, str] | None = None, uid: str = UID) -> Answer:
    environment = {
        "CNI_COMMAND": command,
        "CNI_CONTAINERID": "c1",
        "CNI_NETNS": "/proc/self/ns/net",
        "CNI_IFNAME": "eth0",
        "CNI_ARGS": f"K8S_POD_NAMESPACE=ns;K8S_POD_NAME=p;K8S_POD_UID={uid}",
    }
    conf: dict[str, Any] = {"cniVersion": "1.0.0", "name": "n", "type": "mooring-cni", "prevResult": PREVIOUS}
    conf["runtimeConfig"] = {"io.kubernetes.cri.pod-annotations": annotations}
    return answer(environment, json.dumps(conf).encode(), NoVfSettings, dict(places))


@pytest.fixture
def places(tmp_path: Path) -> dict[str, str]:
    for name in ("state", "run", "sysfs"):
        (tmp_path / name).mkdir()
    return {name: str(tmp_path / name) for name in ("state", "run", "sysfs")}


@pytest.mark.root
@pytest.mark.parametrize("kind", FOREIGN)
@pytest.mark.parametrize(
    "place", ["pods/{uid}.json", "rates/{uid}.json", "vfs/0000:04:00.1.json", "vfs", "pods", "rates"]
)
def test_a_pod_without_vfs_comes_and_goes(places: dict[str, str], kind: str, place: str) -> None:
    """The shim has written no record for it; one that asks for VFs without a record is refused as always."""
    path = Path(places["state"]) / place.format(uid=UID)
    path.parent.mkdir(exist_ok=True)
    FOREIGN[kind](path)
    assert call("ADD", places).code == 0
    assert json.loads(call("ADD", places).text) == PREVIOUS
    assert call("CHECK", places).code == 0
    assert call("DEL", places).code == 0
    refused = call("ADD", places, {names.REQUEST: "[{}]"})
    assert (refused.code, "has no record of them" in refused.text) == (100, True)


def test_a_uid_that_cannot_name_a_record_has_none(places: dict[str, str]) -> None:
    """A client of the runtime such as crictl may name a pod as it likes."""
    assert call("ADD", places, uid="my.pod/../x").code == 0
    assert call("DEL", places, uid="my.pod/../x").code == 0
