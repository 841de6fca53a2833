"""What others have written in a shape that nobody expects: refused in words, or passed over, and never a traceback."""

import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
import yaml

from cli.node.admission_policies import read_policies
from cli.node.errors import NodeError
from cli.node.plan import network, settings
from cli.node.plan.states import CniFolders, File, Host, PathChange
from tests.cli.node.conftest import FLANNEL, FLANNEL_AT, KUBEADM, NodeHost
from tests.cli.node.installing import HostOf, run_install
from tests.support.foreign import FOREIGN
from tests.support.wrong_shapes import wrong_shapes

FOLDER = CniFolders().conf

_CHAIN = {
    "cniVersion": "0.3.1",
    "name": "cbr0",
    "plugins": [{"type": "flannel", "capabilities": {"portMappings": True}}],
}
_OURS = {**_CHAIN, "plugins": [*_CHAIN["plugins"], {"type": "mooring-cni"}, {"type": "istio-cni"}]}
_MULTUS = {"cniVersion": "0.3.1", "name": "multus-cni-network", "type": "multus", "capabilities": {"bandwidth": True}}
_DAEMON = {**_MULTUS, "clusterNetwork": "/host/etc/cni/net.d/00-n-mooring.conflist"}
_BY_NAME = {**_MULTUS, "clusterNetwork": "cbr0", "confDir": "/host/etc/cni/net.d"}
_THIN = {**_MULTUS, "delegates": [_OURS]}
FORMS = {"10-flannel.conflist": _CHAIN, "00-n-mooring.conflist": _OURS}
DEEP = "[" * 2000


def _hosts(name: str, right: dict[str, Any]) -> Iterator[Host]:
    files = {f"{FOLDER}/{each}": File(json.dumps(document)) for each, document in FORMS.items()}
    for text in (DEEP, "", "{", *map(json.dumps, wrong_shapes(right))):
        yield Host(found={**files, f"{FOLDER}/{name}": File(text)}, folders=frozenset(("/etc", "/etc/cni", FOLDER)))


@pytest.mark.parametrize(
    ("name", "right"),
    [
        ("00-multus.conf", _DAEMON),
        ("00-multus.conf", _BY_NAME),
        ("00-multus.conf", _THIN),
        ("00-multus.conflist", {**_CHAIN, "plugins": [_DAEMON]}),
        *FORMS.items(),
    ],
)
def test_a_network_configuration_of_another_shape_is_refused_in_words(name: str, right: dict[str, Any]) -> None:
    """What the runtime would not load either. Whatever is there, what the host would call is reported or not."""
    for before in _hosts(name, right):
        for host in (before, _chained(before)):
            assert all(isinstance(why, str) for _, why in network.problems(host))
            assert all(change.path for change in network.released(host) if isinstance(change, PathChange))
            assert all(network.advice(host))


def _chained(host: Host) -> Host:
    """Return a host with the chain in place, or as it is where that is refused."""
    found = dict(host.found)
    with suppress(NodeError):
        for change in network.chain(host, {}):
            assert isinstance(change, PathChange)
            found.pop(change.path, None)
            if change.after is not None:
                found[change.path] = change.after
    return Host(found=found, folders=host.folders)


@pytest.mark.parametrize("text", ["a: 2026-13-45", DEEP, "{", "[]", "? [a]\n: b"])
def test_a_configuration_of_another_shape_is_refused_in_words(text: str) -> None:
    """YAML has dates, and one that the calendar does not have is no YAML error."""
    with pytest.raises(NodeError, match=r"configuration '/etc/mooring/config\.yaml'"):
        settings.read(Host(found={settings.PATH: File(text)}))


@pytest.mark.parametrize("text", ['{"capabilities": []}', DEEP, "[]", '{"capabilities": null}'])
def test_a_plugin_file_of_another_shape_is_refused_in_words(kubeadm: NodeHost, text: str) -> None:
    """Before anything is changed."""
    kubeadm.write("/etc/mooring/cni.json", text)
    status, said = kubeadm.run("install", "--wheelhouse", str(kubeadm.wheelhouse("first")))
    assert (status, "plugin file" in said, "Traceback" in said) == (1, True, False)


def test_a_kubeconfig_of_another_shape_leaves_the_policies_unknown(host_of: HostOf) -> None:
    """`check` says so and goes on."""
    host = host_of(KUBEADM)
    right = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
    }
    path = host.root / "kubeconfig"
    for text in (DEEP, *map(yaml.safe_dump, [*wrong_shapes(right)][::17])):
        path.write_text(text)
        assert {state.state for state in read_policies(path).values()} == {"unknown"}


@pytest.mark.parametrize("kind", ["fifo", "endless", "huge"])
def test_a_plugin_file_that_is_none_is_refused(kubeadm: NodeHost, kind: str) -> None:
    """A read of it would never end."""
    path = kubeadm.root / "etc/mooring/cni.json"
    path.parent.mkdir(parents=True)
    FOREIGN[kind](path)
    assert "plugin file" in kubeadm.run("check")[1]


def test_a_network_configuration_that_is_a_link_is_read_as_the_runtime_reads_it(host_of: HostOf) -> None:
    """Some distributions keep the files elsewhere; the link stays as it is."""
    host = host_of({**KUBEADM, "/srv/cni/flannel.json": FLANNEL})
    at = host.root / FLANNEL_AT.lstrip("/")
    at.unlink()
    at.symlink_to("/srv/cni/flannel.json")
    run_install(host)
    chain = json.loads(host.text("/etc/cni/net.d/00-n-mooring.conflist"))
    assert [plugin["type"] for plugin in chain["plugins"]] == ["flannel", "portmap", "mooring-cni"]
    assert host.run("check")[0] == 0
    assert host.run("remove")[0] == 0
    assert (str(at.readlink()), at.parent.joinpath("00-n-mooring.conflist").exists()) == (
        "/srv/cni/flannel.json",
        False,
    )
