"""A pod whose rates were changed since its assignment: ADD sets the recorded ones, CHECK and show compare with them."""

import json
from pathlib import Path
from typing import Any

import pytest

from devcluster.hosts.chain import composed_cni
from mooring.annotations.rates import PodRates, VfRates
from mooring.records.rates_record import RatesRecord, dump_rates_record

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(not Path("/usr/lib/cni/host-local").exists(), reason="containernetworking-plugins is missing"),
]

PF = "enp4s0f0"
FIRST = {"pf": PF, "vf": 1, "pci": "0000:04:00.3", "min_tx_rate": 15000, "max_tx_rate": 20000, "vlan": 7}
SECOND = {"pf": PF, "vf": 2, "pci": "0000:04:00.4"}


def write_rates(host: Any, *rates: VfRates, generation: int = 1, node: str = "cnihost") -> None:
    """Write what the server would have recorded."""
    changed = PodRates("u1", node, generation, rates, tuple(one.min_tx_rate or 0 for one in rates))
    path = host.layout.state / "rates" / "u1.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(dump_rates_record(RatesRecord("ns/u1", changed)))


def settings(host: Any, vf: int) -> dict[str, Any]:
    return dict(host.table()["pfs"][PF]["set"].get(str(vf), {}))


def show(host: Any, *words: str) -> str:
    layout = host.layout
    places = ("--state", str(layout.state), "--run", str(layout.run), "--sysfs", str(layout.sys))
    return str(host.enter(*composed_cni(layout), "show", *places, *words).stdout)


def attach(host: Any) -> dict[str, Any]:
    conf = host.conf()
    added = host.call("ADD", conf)
    assert added.pop("status") == 0
    return {**conf, "prevResult": added}


def test_add_sets_the_recorded_rates(host: Any) -> None:
    """In place of the assignment's, also where there are none any more; DEL restores what was there before."""
    before = host.everything()
    host.record(FIRST, SECOND)
    write_rates(host, VfRates(), VfRates(2000, 3000), generation=4)
    conf = attach(host)
    assert [{name: settings(host, vf).get(name, 0) for name in ("min_tx_rate", "max_tx_rate")} for vf in (1, 2)] == [
        {"min_tx_rate": 0, "max_tx_rate": 0},
        {"min_tx_rate": 2000, "max_tx_rate": 3000},
    ]
    assert host.call("CHECK", conf) == {"status": 0}
    assert host.call("DEL") == {"status": 0}
    assert host.everything() == before


def test_check_and_show_name_a_generation_that_is_not_in_force(host: Any) -> None:
    """Recorded, and not set yet: as where the server was killed, or the NIC refuses."""
    host.record(FIRST, SECOND)
    conf = attach(host)
    write_rates(host, VfRates(5000), VfRates(), generation=2)
    text = (
        "vf 0000:04:00.3: rates of generation 2 are not in force: min and max are 15000 and 20000 Mb/s, not 5000 and 0"
    )
    answer = host.call("CHECK", conf)
    assert (answer["code"], answer["details"]) == (103, text)
    assert f"  ! {text}" in show(host).splitlines()
    shown = {vf["pci"]: (vf["rates"], vf["drift"]) for vf in json.loads(show(host, "--output", "json"))["vfs"]}
    assert shown == {
        "0000:04:00.3": ({"generation": 2, "in_force": False}, [text]),
        "0000:04:00.4": ({"generation": 2, "in_force": True}, []),
    }


def test_rates_that_are_not_of_the_pod_record_let_no_pod_start(host: Any) -> None:
    """Another node's, or of another number of VFs: no rate is guessed."""
    host.record(FIRST, SECOND)
    before = host.everything()
    for rates, node in (((VfRates(),), "cnihost"), ((VfRates(), VfRates()), "other")):
        write_rates(host, *rates, node=node)
        answer = host.call("ADD")
        assert (answer["code"], "are not those of the pod record" in answer["msg"]) == (100, True)
    assert host.everything() == before
