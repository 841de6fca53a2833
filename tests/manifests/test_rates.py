"""The component rates: the advertiser has the flag, and exactly the rights that it takes."""

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from cni.server.extracts import make_folders
from cni.server.rates_states import RatesStates
from devcluster.apiserver.access.rbac import Attributes
from devcluster.apiserver.serve import ApiServer, Options
from devcluster.hosts.nic import describe_host
from devcluster.hosts.sysfs import build
from mooring.kube.access import load_access
from mooring.kube.client import Client
from mooring.names import RATES, RATES_IN_FORCE
from mooring.records.rates_exchange import HANDED_OVER
from tests.advertiser.program import advertising
from tests.manifests.accounts import Program, put
from tests.manifests.rendering import built, of_kind
from tests.support.polling import eventually
from tests.support.relay import Relay

PODS = "/api/v1/namespaces/default/pods"
ADVERTISER = Program("advertiser", ("components/rates/rbac.yaml",))


def test_the_overlay_sets_the_flag_and_the_base_does_not() -> None:
    """Nobody reads pods who was not asked to."""
    flags = {}
    for folder in ("base", "overlays/rates"):
        (daemon_set,) = of_kind(built(folder), "DaemonSet")
        flags[folder] = daemon_set["spec"]["template"]["spec"]["containers"][0]["args"]
    assert [*flags["base"], "--rates"] == flags["overlays/rates"]


@pytest.fixture(params=["devcluster", pytest.param("real", marks=pytest.mark.apiserver)])
async def api(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[tuple[Path, ApiServer | None]]:
    """Give an administrator's kubeconfig of devcluster's server with RBAC, and once more of a real one."""
    if request.param == "devcluster":
        async with ApiServer(Options(rbac=True)) as own:
            (tmp_path / "admin").write_text(own.kubeconfig_text())
            yield tmp_path / "admin", own
        return
    kubeconfig = request.getfixturevalue("own_server")
    async with Relay(load_access(str(kubeconfig))) as relay:
        await relay.empty()
    yield kubeconfig, None


async def test_the_advertiser_needs_these_rights_and_no_more(
    api: tuple[Path, ApiServer | None], tmp_path: Path
) -> None:
    """It lists and watches pods, and writes its node; of other nodes' pods it hands nothing over."""
    kubeconfig, own = api
    build(tmp_path / "sys", describe_host("n1", 1, vfs=2))
    make_folders(tmp_path / "run")
    RatesStates().write(tmp_path / "run", {})
    async with Client(load_access(str(kubeconfig))) as admin:
        await ADVERTISER.install(admin)
        await put(admin, "/api/v1/nodes", {"metadata": {"name": "n1"}})
        await put(admin, "/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "default"}})
        for name, node in (("ours", "n1"), ("another", "n2")):
            container = {"name": "c", "image": "registry.example/c:1"}
            spec = {"nodeName": node, "automountServiceAccountToken": False, "containers": [container]}
            await put(admin, PODS, {"metadata": {"name": name, "annotations": {RATES: name}}, "spec": spec})
        pod = msgspec.json.decode(await admin.request("GET", f"{PODS}/ours"))
        await ADVERTISER.log_in(admin, kubeconfig, tmp_path / "kubeconfig", kind="Node", name="n1")

        async def published() -> bool:
            node = msgspec.json.decode(await admin.request("GET", "/api/v1/nodes/n1"))
            return RATES_IN_FORCE in node["metadata"].get("annotations", {})

        async with advertising(tmp_path, "--rates", "--resync", "0.2"):
            await eventually(published)
    files = [path.name for path in (tmp_path / "run" / HANDED_OVER).glob("*.json")]
    assert files == [f"{pod['metadata']['uid']}.json"]
    if own is not None and own.authorizer is not None:
        assert own.authorizer.refused == {}
        asked = {one for one in own.authorizer.asked(ADVERTISER.user) if one.resource == "pods"}
        assert asked == {Attributes(verb, "", "pods", "", "") for verb in ("list", "watch")}
