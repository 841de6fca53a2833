"""`mooring.annotations.rates`: what the scheduler and a node tell each other about changed rates; what is refused."""

import json
from dataclasses import replace

import pytest

from mooring.annotations.assignment import AssignedVf, Assignment
from mooring.annotations.rates import (
    PodRates,
    RatesInForce,
    VfRates,
    dump_rates,
    dump_rates_in_force,
    read_rates,
    read_rates_in_force,
    verified_rates,
    with_rates,
)
from mooring.errors import AnnotationError
from mooring.nic.settings import VfSettings

ASSIGNMENT = Assignment(
    "u1",
    "n1",
    (
        AssignedVf("enp4s0f0", 0, "0000:04:00.2", "ethernet", "rail0", VfSettings(min_tx_rate=5000, vlan=100)),
        AssignedVf("enp4s0f0", 1, "0000:04:00.3", "ethernet", "rail0"),
    ),
)
RATES = PodRates("u1", "n1", 2, (VfRates(15000, 20000), VfRates()), (20000, 0))


def test_what_is_written_is_what_is_read() -> None:
    """Rates and what is in force survive the annotation, and the text is the one that the documentation shows."""
    text = (
        '{"generation":2,"node":"n1","rates":[{"max_tx_rate":20000,"min_tx_rate":15000},{}],"reserved":[20000,0],'
        '"uid":"u1","v":1}'
    )
    assert dump_rates(RATES) == text
    assert read_rates(text) == RATES
    assert dump_rates_in_force(RatesInForce({"u1": 2})) == '{"pods":{"u1":2},"v":1}'
    assert read_rates_in_force('{"pods":{"u1":2},"v":1,"later":true}') == RatesInForce({"u1": 2})


def test_rates_stand_in_place_of_the_assignments() -> None:
    """A rate that is absent is unset also where the assignment has one, and nothing but the rates changes."""
    changed = with_rates(ASSIGNMENT, RATES)
    assert changed.vfs[0].settings == VfSettings(min_tx_rate=15000, max_tx_rate=20000, vlan=100)
    assert changed.vfs[1] == ASSIGNMENT.vfs[1]
    lowered = replace(RATES, rates=(VfRates(), VfRates()))
    assert with_rates(ASSIGNMENT, lowered).vfs[0].settings == VfSettings(vlan=100)


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"v": 2}, "v: 2 is not an integer from 1 to 1"),
        ({"generation": 0}, "generation: 0 is not an integer from 1 to 9007199254740991"),
        ({"generation": True}, "generation: true is not an integer from 1 to 9007199254740991"),
        ({"rates": [{"min_tx_rate": 2, "max_tx_rate": 1}, {}]}, "rates[0].min_tx_rate: 2 exceeds max_tx_rate 1"),
        ({"rates": [{"vlan": 5}, {}]}, "rates[0].vlan: unknown field; known fields are max_tx_rate, min_tx_rate"),
        ({"reserved": [14999, 0]}, "reserved[0]: 14999 is below min_tx_rate 15000"),
        ({"reserved": [15000]}, "reserved: has 1 entries for 2 rates"),
        ({"uid": "../u"}, "uid: '../u' is not"),
        ({"uid": "u2"}, "uid: 'u2' is not the assignment's uid 'u1'"),
        ({"node": "n2"}, "node: 'n2' is not the assignment's node 'n1'"),
        ({"rates": [{}], "reserved": [0]}, "rates: 1 entries for the 2 VFs of the assignment"),
        ({"more": 1}, "more: unknown field"),
    ],
)
def test_other_rates_are_refused_by_name(change: dict[str, object], rule: str) -> None:
    """An error names the annotation, the place, the value and the rule."""
    text = json.dumps(json.loads(dump_rates(RATES)) | change)
    with pytest.raises(AnnotationError) as refused:
        verified_rates(text, ASSIGNMENT)
    assert rule in str(refused.value)
    assert "mooring.dev/rates" in str(refused.value)


@pytest.mark.parametrize("text", ['{"v":1}', '{"v":1,"pods":{"a/b":1}}', '{"v":1,"pods":{"a":0}}', "[]"])
def test_what_is_in_force_is_read_strictly(text: str) -> None:
    """A uid that is none, a generation that is none, and no list of pods are refused."""
    with pytest.raises(AnnotationError):
        read_rates_in_force(text)


def test_no_node_names_more_pods_than_it_can_have_vfs() -> None:
    """An annotation that names more pods is refused whole."""
    pods = {f"u{index}": 1 for index in range(4097)}
    with pytest.raises(AnnotationError, match="4097 pods are more than 4096"):
        read_rates_in_force(dump_rates_in_force(RatesInForce(pods)))
