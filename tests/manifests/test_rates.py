"""The component rates: the advertiser has the flag, and exactly the rights that it takes."""

from pathlib import Path

import msgspec

from cni.server.extracts import make_folders
from cni.server.rates_states import RatesStates
from devcluster.apiserver.rbac import Attributes
from devcluster.apiserver.serve import ApiServer, Options
from devcluster.hosts.nic import describe_host
from devcluster.hosts.sysfs import build
from mooring.kube.access import load_access
from mooring.kube.client import Client
from mooring.names import RATES, RATES_IN_FORCE
from mooring.rates_exchange import HANDED_OVER
from tests.advertiser.program import advertising
from tests.manifests.accounts import Program, put
from tests.manifests.rendering import built, of_kind
from tests.support.polling import eventually

PODS = "/api/v1/namespaces/default/pods"
ADVERTISER = Program("advertiser", ("components/rates/rbac.yaml",))


def test_the_overlay_sets_the_flag_and_the_base_does_not() -> None:
    """Nobody reads pods who was not asked to."""
    flags = {}
    for folder in ("base", "overlays/rates"):
        (daemon_set,) = of_kind(built(folder), "DaemonSet")
        flags[folder] = daemon_set["spec"]["template"]["spec"]["containers"][0]["args"]
    assert [*flags["base"], "--rates"] == flags["overlays/rates"]


async def test_the_advertiser_needs_these_rights_and_no_more(tmp_path: Path) -> None:
    """It lists and watches pods, and writes its node; of other nodes' pods it hands nothing over."""
    build(tmp_path / "sys", describe_host("n1", 1, vfs=2))
    make_folders(tmp_path / "run")
    RatesStates().write(tmp_path / "run", {})
    async with ApiServer(Options(rbac=True)) as server:
        (tmp_path / "admin").write_text(server.kubeconfig_text())
        async with Client(load_access(str(tmp_path / "admin"))) as admin:
            await ADVERTISER.install(admin)
            await put(admin, "/api/v1/nodes", {"metadata": {"name": "n1"}})
            await put(admin, "/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "default"}})
            for name, node in (("ours", "n1"), ("another", "n2")):
                spec = {"nodeName": node, "containers": [{"name": "c", "image": "registry.example/c:1"}]}
                await put(admin, PODS, {"metadata": {"name": name, "annotations": {RATES: name}}, "spec": spec})
            pod = msgspec.json.decode(await admin.request("GET", f"{PODS}/ours"))
            await ADVERTISER.log_in(admin, tmp_path / "admin", tmp_path / "kubeconfig", kind="Node", name="n1")

            async def published() -> bool:
                node = msgspec.json.decode(await admin.request("GET", "/api/v1/nodes/n1"))
                return RATES_IN_FORCE in node["metadata"].get("annotations", {})

            async with advertising(tmp_path, "--rates", "--resync", "0.2"):
                await eventually(published)
        files = [path.name for path in (tmp_path / "run" / HANDED_OVER).glob("*.json")]
        assert files == [f"{pod['metadata']['uid']}.json"]
        assert server.authorizer is not None
        assert server.authorizer.refused == {}
        asked = {one for one in server.authorizer.asked(ADVERTISER.user) if one.resource == "pods"}
        assert asked == {Attributes(verb, "", "pods", "", "") for verb in ("list", "watch")}
