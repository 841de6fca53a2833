"""The component node-installer: its pod's program under its rights, on an API server, with a stand-in for the host."""

from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest

from cli.node.fleet.commands import Options
from cli.node.options import COMMANDS, PROGRAM
from cli.node.plan.turns import KEY, read_turns
from devcluster.processes import free_ports
from mooring.program.config import load
from mooring.records.node_install import NAME, read_node_install
from tests.cli.node.fleet.stand_in_host import StandInHost, runtime, stand_in_host
from tests.manifests.accounts import NODE_NAMESPACE, Program, put, unneeded
from tests.manifests.rendering import raw
from tests.manifests.test_rights import Cluster, cluster, running
from tests.support import polling

__all__ = ["cluster"]
FOLDER = "components/node-installer"
INSTALLER = Program("node-installer", folder=FOLDER)
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NODE_NAMESPACE}/leases"


def test_the_program_takes_the_flags_and_the_lease_is_the_one_that_its_role_names() -> None:
    flags = [flag.replace("$(NAMESPACE)", NODE_NAMESPACE) for flag in INSTALLER.arguments(NODE_NAME="n1")]
    command, options = load(Options, PROGRAM, flags, {}, COMMANDS)
    (lease,) = raw(f"{FOLDER}/lease.yaml")
    assert (command, options.node, options.namespace) == ("fleet", "n1", NODE_NAMESPACE)
    assert options.lease == lease["metadata"]["name"]
    assert [right.name for right in INSTALLER.rights() if right.resource == "leases"] == [options.lease] * 2
    (daemonset,) = raw(f"{FOLDER}/daemonset.yaml")
    (container,) = daemonset["spec"]["template"]["spec"]["containers"]
    assert container["command"] == [PROGRAM]
    assert {one["mountPath"] for one in container["volumeMounts"]} == {str(options.root), str(options.settings)}
    # Nobody but the host itself reaches it.
    probes = [container[name]["httpGet"] for name in ("livenessProbe", "readinessProbe")]
    assert {f"{probe['host']}:{container['ports'][0]['containerPort']}" for probe in probes} == {options.addr}


@pytest.fixture
def host(tmp_path: Path) -> Iterator[StandInHost]:
    with stand_in_host(tmp_path / "host") as made:
        yield made


@pytest.mark.root
async def test_the_installer_runs_under_its_rights_and_needs_each(
    cluster: Cluster, host: StandInHost, tmp_path: Path
) -> None:
    """It installs the node in a turn that it ends; its own end removes nothing."""
    (port,) = free_ports(1)
    flags = [flag.replace("$(NAMESPACE)", NODE_NAMESPACE) for flag in INSTALLER.arguments(NODE_NAME="n1")]
    image = runtime(tmp_path / "mooring", "0.2.0")
    own = [f"--runtime={image.folder}", f"--root={host.root}", f"--process={host.process}"]
    access = [f"--kubeconfig={tmp_path / 'node-installer'}", f"--addr=127.0.0.1:{port}", "--check-every=9"]
    async with cluster.acting(INSTALLER, tmp_path):
        (lease,) = raw(f"{FOLDER}/lease.yaml")
        await put(cluster.admin, LEASES, lease)
        node = {"metadata": {"name": "n1"}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}
        await put(cluster.admin, "/api/v1/nodes", node)
        async with running("cli.node", *flags, *own, *access), aiohttp.ClientSession() as session:

            async def is_ready() -> bool:
                try:
                    async with session.get(f"http://127.0.0.1:{port}/readyz") as answer:
                        return answer.status == 200
                except aiohttp.ClientConnectionError:
                    return False

            await polling.eventually(is_ready)
        found = await cluster.get(f"{LEASES}/mooring-node-installer")
    turns = read_turns(found["metadata"]["annotations"][KEY])
    assert turns.proven.startswith(f"install {image.release} ")
    assert not turns.turns
    assert found["spec"]["holderIdentity"] == "n1"
    assert host.calls() == ["install"]
    assert read_node_install((host.root / "run/mooring" / NAME).read_text()).phase == "installed"
    if cluster.own is not None and (authorizer := cluster.own.authorizer) is not None:
        assert authorizer.refused == {}
        assert unneeded(INSTALLER.rights(), authorizer.asked(INSTALLER.user)) == []
