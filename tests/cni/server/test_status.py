"""STATUS fails where ADD of a pod without VFs would fail, and only there."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cni.server.dispatch import Answer, answer
from mooring import names
from tests.cni.no_vf_settings import NoVfSettings
from tests.support.foreign import litter

ANNOTATIONS = "io.kubernetes.cri.pod-annotations"
PREVIOUS = {"cniVersion": "1.1.0", "interfaces": [{"name": "eth0"}], "ips": []}


class Node:
    """The folders of a node, and the calls that a runtime makes of its chain."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.fields: dict[str, object] = {}
        self.sends_annotations = True
        for name in ("state", "run", "sysfs"):
            (root / name).mkdir()

    def call(self, command: str, annotations: dict[str, str] | None = None, **more: object) -> Answer:
        environment = {"CNI_COMMAND": command, "CNI_PATH": "/nonexistent"}
        conf: dict[str, Any] = {"cniVersion": "1.1.0", "name": "n", "type": "mooring-cni", **self.fields, **more}
        if self.sends_annotations:
            conf["capabilities"] = {ANNOTATIONS: True}
        if command != "STATUS":
            environment |= {"CNI_CONTAINERID": "c1", "CNI_NETNS": "/proc/self/ns/net", "CNI_IFNAME": "eth0"}
            environment["CNI_ARGS"] = "K8S_POD_NAMESPACE=ns;K8S_POD_NAME=p;K8S_POD_UID=u1"
            conf |= {"prevResult": PREVIOUS} | conf
            conf |= {"runtimeConfig": {ANNOTATIONS: annotations}} if self.sends_annotations else {}
        places = {name: str(self.root / name) for name in ("state", "run", "sysfs")}
        return answer(environment, json.dumps(conf).encode(), NoVfSettings, places)

    def codes(self) -> tuple[int, int]:
        """Return the codes of STATUS, and of ADD of a pod without VFs."""
        return self.call("STATUS").code, self.call("ADD").code


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def _offer(text: str) -> Callable[[Node], object]:
    return lambda node: (node.root / "state/offer.json").write_text(text)


def _fields(**fields: object) -> Callable[[Node], object]:
    return lambda node: node.fields.update(fields)


def _open_state(node: Node) -> None:
    (node.root / "state").chmod(0o777)


def _version(node: Node) -> None:
    (node.root / "run/version").mkdir()
    (node.root / "run/version/mooring-cni").write_text("0.0.1")


def _litter(node: Node) -> None:
    for name in ("state/vfs", "state/pods", "state/rates", "run/sandboxes", "run/version", "run/extract"):
        litter(node.root / name, "0000:04:00.1.json")


def _no_folders(node: Node) -> None:
    for name in ("state", "run", "sysfs"):
        (node.root / name).rmdir()


def _entry_cut_off(node: Node) -> None:
    (node.root / "state/vfs").mkdir()
    (node.root / "state/vfs/0000:04:00.1.json").write_text('{"v":1,')


def _offer_is_a_pipe(node: Node) -> None:
    os.mkfifo(node.root / "state/offer.json")


@pytest.mark.root
@pytest.mark.parametrize(
    "fault",
    [
        lambda node: None,
        _fields(awaitInit=True),
        _offer("{"),
        _offer_is_a_pipe,
        _open_state,
        _version,
        _litter,
        _no_folders,
        _entry_cut_off,
        _fields(ipam={"type": "nonesuch"}),
        _fields(networks={"rail0": {"ipam": {"type": "nonesuch"}}}),
        _fields(networks={"rail0": {"mtu": "large"}}),
        _fields(networks=7),
        _fields(holdTimeoutSecond=5),
        _fields(ipMasq=True),
        _fields(policyRouting="on"),
    ],
)
@pytest.mark.parametrize("sends_annotations", [True, False])
def test_what_keeps_vfs_alone_keeps_no_pod_without_them(
    node: Node, fault: Callable[[Node], object], sends_annotations: bool
) -> None:
    """An unprepared node, a spoilt offer or network, a missing plugin, another version, strange files."""
    fault(node)
    node.sends_annotations = sends_annotations
    assert node.codes() == (0, 0)
    assert json.loads(node.call("ADD").text) == PREVIOUS


def test_a_configuration_that_no_pod_can_use_fails_both(node: Node) -> None:
    """Where the records are is needed to know that a pod has none."""
    node.fields["state"] = "not/absolute"
    assert node.codes() == (7, 7)


def test_records_that_cannot_be_read_fail_both_where_nothing_else_says_what_a_pod_asks_for(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Multus passes no annotations: a pod with VFs would start without them."""
    opened = os.open

    def failing(path: Any, *arguments: Any, **named: Any) -> int:
        if "pods" in str(path):
            raise OSError(5, "Input/output error", str(path))
        return opened(path, *arguments, **named)

    (node.root / "state/pods").mkdir()
    for uid in ("status", "u1"):
        (node.root / f"state/pods/{uid}.json").write_text("{}")
    monkeypatch.setattr(os, "open", failing)
    assert node.codes() == (0, 0)
    node.sends_annotations = False
    assert node.codes() == (50, 5)


def test_a_pod_with_vfs_is_refused_for_what_is_wrong_with_the_configuration(node: Node) -> None:
    """Its record says that it has some: the field is named, and nothing is changed."""
    assignment = {
        "v": 1,
        "uid": "u1",
        "node": "n1",
        "vfs": [{"pci": "0000:04:00.1", "pf": "pf0", "vf": 0, "link": "ethernet", "network": "default"}],
    }
    (node.root / "state/pods").mkdir()
    (node.root / "state/pods/u1.json").write_text(json.dumps({"v": 1, "pod": "ns/p", "assignment": assignment}))
    refused = node.call("ADD", {names.REQUEST: "[{}]"}, holdTimeoutSecond=5)
    assert (refused.code, "holdTimeoutSecond" in refused.text) == (7, True)
    assert node.call("GC", networks=7).code == 7
