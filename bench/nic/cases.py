"""The cases that are compared: every value, every order of two settings, every refused command, and random sequences.

The firmware's commands are those of include/linux/mlx5/mlx5_ifc.h, without MLX5_CMD_OP_.
"""

from collections.abc import Iterator, Sequence
from itertools import permutations, product
from random import Random
from typing import Any

from bench.nic.steps import FIRST_VFS, TOTAL_VFS, Case, Step, write

# Commands that the driver sends for a setting of a VF. It only logs the refusal of a command that deletes.
COMMANDS = {
    "MODIFY_VPORT_STATE": 0x751,
    "MODIFY_ESW_VPORT_CONTEXT": 0x753,
    "MODIFY_NIC_VPORT_CONTEXT": 0x755,
    "CREATE_SCHEDULING_ELEMENT": 0x782,
    "MODIFY_SCHEDULING_ELEMENT": 0x785,
    "CREATE_FLOW_TABLE": 0x930,
    "CREATE_FLOW_GROUP": 0x933,
    "SET_FLOW_TABLE_ENTRY": 0x936,
}
_MAC, _OTHER_MAC = "02:00:00:00:00:71", "02:00:00:00:00:72"
_VALUES: tuple[dict[str, Any], ...] = (
    *({"mac": mac} for mac in (_MAC, "00:00:00:00:00:00", "01:00:5e:00:00:01", "ff:ff:ff:ff:ff:ff")),
    *({"vlan": vlan} for vlan in (0, 1, 4094, 4095, 4096)),
    *({"vlan": vlan, "qos": qos} for vlan, qos in ((5, 7), (5, 8), (0, 3))),
    *({"max_tx_rate": rate} for rate in (0, 1, 100_000, 200_000, 0xFFFF_FFFF)),
    *({"min_tx_rate": rate} for rate in (0, 1, 1000, 200_000)),
    *({"min_tx_rate": low, "max_tx_rate": high} for low, high in ((0, 0), (500, 400), (400, 500), (500, 0))),
    *({"spoofchk": value} for value in (True, False)),
    *({"trust": value} for value in (True, False)),
    *({"link_state": value} for value in ("auto", "enable", "disable")),
    {"guid": "02:00:00:00:00:00:00:71"},
)
# One value of each setting, and its opposite.
_SET: tuple[dict[str, Any], ...] = (
    *({"mac": _MAC}, {"vlan": 7, "qos": 3}, {"min_tx_rate": 2000}, {"max_tx_rate": 3000}),
    *({"spoofchk": True}, {"trust": True}, {"link_state": "enable"}),
)
_UNSET: tuple[dict[str, Any], ...] = (
    *({"mac": "00:00:00:00:00:00"}, {"vlan": 0}, {"min_tx_rate": 0, "max_tx_rate": 0}),
    *({"spoofchk": False}, {"trust": False}, {"link_state": "disable"}),
)
_ALL = {name: value for settings in _SET for name, value in settings.items()}
_RATES: tuple[dict[str, Any], ...] = (
    *({"min_tx_rate": 0, "max_tx_rate": 0}, {"max_tx_rate": 500}),
    *({"min_tx_rate": 20_000}, {"min_tx_rate": 1990}, {"min_tx_rate": 50}),
)
_EVENTS = (Step("reload"), Step("bind", 0), Step("numvfs", 0), Step("numvfs", 2), Step("numvfs", TOTAL_VFS))


def matrix() -> Iterator[Case]:
    """Yield the cases that are the same in every run."""
    # To make VFs again takes a second (sriov_disable of drivers/pci/iov.c waits), so each VF of a case has its own.
    for some in _threes(_VALUES):
        yield Case("each value", tuple(write(vf, **settings) for vf, settings in enumerate(some)))
    for pairs in _threes(tuple(permutations((*_SET, *_UNSET), 2))):
        yield Case(
            "each order of two settings", tuple(write(vf, **one) for vf, pair in enumerate(pairs) for one in pair)
        )
    for rates in product(_RATES, repeat=2):
        yield Case("rates of two VFs", tuple(write(vf, **one) for vf, one in enumerate(rates)))
    for command, before in product(COMMANDS, ({}, _ALL, {"vlan": 5})):
        for some in _threes((*_SET, *_UNSET)):
            yield Case("each refused command", tuple(_refused(command, before, some)))
    for number, settings in product((FIRST_VFS, TOTAL_VFS - 1, TOTAL_VFS), (*_SET, _ALL)):
        steps = (write(number, **settings), Step("numvfs", 0), Step("numvfs", TOTAL_VFS), write(0, min_tx_rate=100))
        yield Case("VFs that do not exist", steps)
    for event, settings in product(_EVENTS, (*_SET, _ALL)):
        yield Case("events", (write(0, **settings), event, *((Step("numvfs", 3),) if event.event == "numvfs" else ())))


FIRST: dict[str, Any] = {"mac": "02:00:00:00:00:70", "spoofchk": False, "trust": False, "link_state": "auto"} | {
    "vlan": 0, "qos": 0, "min_tx_rate": 0, "max_tx_rate": 0
}  # fmt: skip


def of_one_vf() -> Iterator[Case]:
    """Yield each value and each order of two settings, after `FIRST`: what the hardware test compares a card with."""
    values = ((each,) for each in _VALUES if "guid" not in each)
    for some in (*values, *permutations((*_SET, *_UNSET), 2)):
        yield Case("one VF", (write(0, **FIRST), *(write(0, **settings) for settings in some)))


def _threes(values: Sequence[Any]) -> Iterator[Sequence[Any]]:
    return (values[start : start + FIRST_VFS] for start in range(0, len(values), FIRST_VFS))


def _refused(command: str, before: dict[str, Any], some: Sequence[dict[str, Any]]) -> Iterator[Step]:
    """Yield what VFs have before, the settings that are refused, and the same once more."""
    for vf, settings in enumerate(some):
        if before:
            yield write(vf, **before)
        yield write(vf, command, **settings)
        yield write(vf, **settings)


def random_cases(seed: int, count: int) -> Iterator[Case]:
    """Yield ``count`` random sequences; a seed repeats them."""
    random = Random(seed)
    for number in range(count):
        yield Case(f"random sequence {number} of seed {seed}", tuple(_random_step(random) for _ in range(8)))


def _random_step(random: Random) -> Step:
    if random.random() < 0.1:
        return random.choice(_EVENTS[:2])
    settings: dict[str, Any] = {}
    for _ in range(random.choice((1, 1, 2, 3))):
        settings |= random.choice((*_VALUES, *_SET, *_UNSET, *_RATES, {"mac": _OTHER_MAC}))
    refused = random.choice(tuple(COMMANDS)) if random.random() < 0.3 else None
    return write(random.randrange(FIRST_VFS + 1), refused, **settings)
