"""`netdev` in a request and an assignment: a VF's RDMA device alone, or a VF that has a netdev."""

import json
from typing import Any

import pytest

from mooring import names
from mooring.annotations.assignment import dump_assignment, read_assignment, verified_assignment
from mooring.annotations.inventory import dump_inventory, read_inventory
from mooring.annotations.request import dump_interfaces, read_request
from mooring.errors import AnnotationError

PF = {"name": "ib0", "pci": "0000:3b:00.0", "link": "infiniband", "network": "default", "mbps": 1, "offer_mbps": 1}


def requested(**fields: Any) -> bool | None:
    found = read_request({names.REQUEST: json.dumps([fields])})
    assert found is not None
    assert json.loads(dump_interfaces(found.interfaces)) == [fields]
    return found.interfaces[0].netdev


def assigned(**fields: Any) -> dict[str, Any]:
    vf = {"pf": "ib0", "vf": 0, "pci": "0000:3b:01.0", "link": "infiniband", "network": "default"} | fields
    return {"v": 1, "uid": "u1", "node": "n1", "vfs": [vf]}


@pytest.mark.parametrize("fields", [{}, {"netdev": True}, {"netdev": False}])
def test_a_request_says_no_yes_or_nothing(fields: dict[str, Any]) -> None:
    """The field ``netdev`` keeps its absence apart from both values."""
    assert requested(**fields) == fields.get("netdev")


def test_what_a_vf_has_without_a_netdev_may_be_requested_with_it() -> None:
    assert requested(netdev=False, link="infiniband", guid="02:00:00:00:00:00:00:01", link_state="auto") is False


@pytest.mark.parametrize(
    "fields",
    [
        *({"name": "rdma1"}, {"mac": "02:00:00:00:00:01"}, {"vlan": 7}, {"vlan": 7, "qos": 3}),
        *({"trust": False}, {"spoofchk": True}, {"link": "ethernet"}),
    ],
    ids=str,
)
def test_what_only_a_netdev_has_is_refused_without_one(fields: dict[str, Any]) -> None:
    """In the request, and in the assignment, whoever wrote that; with a netdev each of them is read."""
    where = next(iter(fields))
    with pytest.raises(AnnotationError, match=rf"\[0\]\.{where}: .*netdev is false"):
        requested(**fields, netdev=False)
    with pytest.raises(AnnotationError, match=rf"vfs\[0\]\.{where}: .*netdev is false"):
        read_assignment(json.dumps(assigned(**fields, netdev=False)))
    assert requested(**fields, netdev=True) is True


@pytest.mark.parametrize("value", [0, "false", None, []])
def test_anything_but_a_boolean_is_refused(value: object) -> None:
    with pytest.raises(AnnotationError, match=r"\[0\]\.netdev"):
        read_request({names.REQUEST: json.dumps([{"netdev": value}])})


@pytest.mark.parametrize("fields", [{}, {"netdev": True}, {"netdev": False}])
def test_the_assignment_carries_it(fields: dict[str, Any]) -> None:
    """As it was requested, also by the short way to read what the scheduler writes."""
    document = assigned(**fields)
    written = dump_assignment(read_assignment(json.dumps(document)))
    assert json.loads(written) == document
    read = verified_assignment({names.ASSIGNMENT: written}, "u1", "n1")
    assert read is not None
    assert read.vfs[0].netdev == fields.get("netdev")


@pytest.mark.parametrize("fields", [{}, {"vf_netdevs": True}, {"vf_netdevs": False}])
def test_an_inventory_tells_whether_a_pfs_vfs_have_netdevs_or_does_not(fields: dict[str, Any]) -> None:
    """One of an earlier version does not."""
    pf = PF | {"up": True, "vf0": "0000:3b:01.0", "stride": 1, "vfs": "0-1"} | fields
    found = read_inventory(json.dumps({"v": 1, "boot": "b", "pfs": [pf]}))
    assert found.pfs[0].vf_netdevs == fields.get("vf_netdevs")
    assert json.loads(dump_inventory(found))["pfs"] == [pf]
