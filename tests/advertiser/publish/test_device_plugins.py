"""Where a device plugin gives the same GPUs, the advertiser says so."""

from collections.abc import Mapping
from typing import cast

import msgspec
import pytest
from structlog.testing import capture_logs

from advertiser.formats.cluster_facts import Node
from advertiser.publish.cluster_view import ClusterView
from advertiser.publish.node_resources import NodeResources
from advertiser.publish.publisher import Publisher
from mooring.gpu.device_plugins import allocatable_resources
from mooring.kube.client import Client
from mooring.kube.events import Changed, Identity


class _Silent:
    """Stand in for what is written to the node."""

    def set_observed_state(self, *_: object) -> None:
        pass


def _view(*, gives_gpus: bool) -> ClusterView:
    silent = _Silent()
    gpus = cast("Publisher", silent) if gives_gpus else None
    nothing = cast("Client", None)
    return ClusterView(nothing, "n1", cast("Publisher", silent), cast("NodeResources", silent), lambda: None, gpus)


def _told(view: ClusterView, *statuses: Mapping[str, str]) -> list[str]:
    with capture_logs() as logs:
        for allocatable in statuses:
            view._take_node(Changed(Identity("n1"), _node(allocatable)))
    return [line["reason"] for line in logs if line["event"] == "GPUs are allocated twice"]


def _node(allocatable: Mapping[str, str]) -> Node:
    return msgspec.convert({"metadata": {"name": "n1"}, "status": {"allocatable": allocatable}}, Node)


def test_it_is_told_once_while_it_lasts_and_again_when_it_comes_back() -> None:
    """A node's status changes each few seconds."""
    with_plugin = {"cpu": "8", "nvidia.com/gpu": "8"}
    told = _told(_view(gives_gpus=True), {"cpu": "8"}, with_plugin, with_plugin, {"nvidia.com/gpu": "0"}, with_plugin)
    assert told == ["a device plugin advertises nvidia.com/gpu on this node: two pods could get the same GPU"] * 2


def test_a_node_whose_gpus_are_the_plugins_alone_is_as_it_should_be() -> None:
    """Mooring gives no GPUs there."""
    assert _told(_view(gives_gpus=False), {"nvidia.com/gpu": "8"}) == []


@pytest.mark.parametrize(
    ("amounts", "found"),
    [
        ({}, []),
        ({"nvidia.com/gpu": "0", "amd.com/gpu": 0}, []),
        ({"amd.com/gpu": 8, "nvidia.com/gpu.shared": "32"}, ["nvidia.com/gpu.shared", "amd.com/gpu"]),
        ({"mooring.dev/gpu": "8", "nvidia.com/mig-1g.10gb": "7"}, []),
    ],
)
def test_whole_gpus_count_and_slices_do_not(amounts: Mapping[str, object], found: list[str]) -> None:
    """Of a GPU that is cut none is offered."""
    assert allocatable_resources(amounts) == found
