"""A decision is the same in however many turns it is made, while nothing else happens."""

import json
from random import Random
from typing import Any

import pytest

from mooring import names
from mooring.annotations.assignment import read_assignment
from mooring.kube.events import Changed, Identity
from scheduler.cycle.decisions import Bind
from scheduler.cycle.groups import group_snapshot
from scheduler.cycle.instructions import Instruction
from scheduler.state.machine import Machine
from tests.scheduler.group_life import Life, binds, told

_LEAF = "leaf"


def _show(life: Life, random: Random) -> None:
    for number in range(random.randint(3, 6)):
        networks = random.sample([f"rail{k}" for k in range(8)], random.randint(1, 6))
        pfs = tuple(life.make_pf(k, random.randint(0, 3), network=network) for k, network in enumerate(networks))
        node = life.make_node(f"n{number}", pfs, labels={_LEAF: random.choice("ab")})
        life.machine.nodes(Changed(Identity(f"n{number}"), node), life.now)


def _job(life: Life, random: Random) -> None:
    count = random.randint(2, 5)
    asks: dict[str, Any] = {"rails": random.choice(("same", "index"))} if random.random() < 0.7 else {}
    asks |= random.choice(({}, {"within": _LEAF}, {"prefer": [_LEAF]}))
    group = json.dumps({"name": "train", "min": random.randint(1, count), **asks})
    requests = [[{"min_tx_rate": random.choice((0, 30_000, 50_000))}] * random.randint(1, 2) for _ in range(2)]
    life.see(*(life.member(f"m{k}", group, request=random.choice(requests)) for k in range(count)))


def _outcome(life: Life, seed: int) -> tuple[dict[str, Any], dict[str, str], int]:
    random = Random(seed)
    _show(life, random)
    _job(life, random)
    steps, found = 0, list[Instruction]()
    while (made := life.machine.step(life.now)) is not None:
        steps += 1
        found += made
    bound: list[Bind] = binds(found)
    where = {
        one.pod_info.pod.metadata.name: (one.assigned.node, read_assignment(one.annotations[names.ASSIGNMENT]).vfs)
        for one in bound
    }
    return where, told(found), steps


@pytest.mark.parametrize("seed", range(150))
def test_of_one_decision_in_many_turns(life: Life, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    where, why, steps = _outcome(life, seed)
    life.machine = Machine("mooring")
    # Whatever is counted ends the turn.
    monkeypatch.setattr(group_snapshot, "A_TURN", 1)
    again, why_again, more_steps = _outcome(life, seed)
    assert (again, list(why_again.values())) == (where, list(why.values()))
    assert more_steps >= steps
