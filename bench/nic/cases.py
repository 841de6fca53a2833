"""The cases that are compared: every value, every order of two settings, every refused command, and random sequences.

The firmware's commands are those of include/linux/mlx5/mlx5_ifc.h, without MLX5_CMD_OP_.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations, product
from random import Random
from typing import Any

from bench.nic.steps import FIRST_VFS, TOTAL_VFS, Case, Step, write
from mooring.names import LinkType

# Commands that the driver sends for a setting of a VF. It only logs the refusal of a command that deletes.
COMMANDS = {
    "MODIFY_VPORT_STATE": 0x751,
    "MODIFY_ESW_VPORT_CONTEXT": 0x753,
    "MODIFY_NIC_VPORT_CONTEXT": 0x755,
    "MODIFY_HCA_VPORT_CONTEXT": 0x763,
    "CREATE_SCHEDULING_ELEMENT": 0x782,
    "MODIFY_SCHEDULING_ELEMENT": 0x785,
    "SET_FLOW_TABLE_ROOT": 0x92F,
    "CREATE_FLOW_TABLE": 0x930,
    "CREATE_FLOW_GROUP": 0x933,
    "SET_FLOW_TABLE_ENTRY": 0x936,
}
_MAC = "02:00:00:00:00:71"
_VALUES: tuple[dict[str, Any], ...] = (
    *(
        {"mac": mac}
        for mac in (_MAC, "02:00:00:00:00:72", "00:00:00:00:00:00", "01:00:5e:00:00:01", "ff:ff:ff:ff:ff:ff")
    ),
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
_GUID, _NO_GUID = "02:00:00:00:00:00:00:71", "00:00:00:00:00:00:00:00"
_INFINIBAND_SET: tuple[dict[str, Any], ...] = ({"guid": _GUID}, {"link_state": "enable"})
_INFINIBAND_UNSET: tuple[dict[str, Any], ...] = ({"guid": _NO_GUID}, {"link_state": "disable"}, {"link_state": "auto"})


@dataclass(frozen=True, slots=True)
class Choices:
    """What is written on one kind of link: values, one of each setting, what ends them, rates.

    ``missing`` are VFs that do not exist; mlx5_ib_set_vf_guid writes beyond its array for one that the device cannot
    have. ``befores``: what VFs have when a command is refused.
    """

    values: Sequence[dict[str, Any]]
    set: Sequence[dict[str, Any]]
    unset: Sequence[dict[str, Any]]
    rates: Sequence[dict[str, Any]]
    commands: Sequence[str]
    befores: Sequence[dict[str, Any]]
    missing: Sequence[int]

    @property
    def all_set(self) -> dict[str, Any]:
        return {name: value for settings in self.set for name, value in settings.items()}


CHOICES: dict[LinkType, Choices] = {
    "ethernet": Choices(
        _VALUES,
        _SET,
        _UNSET,
        _RATES,
        [name for name in COMMANDS if name != "MODIFY_HCA_VPORT_CONTEXT"],
        ({}, _ALL, {"vlan": 5}),
        (FIRST_VFS, TOTAL_VFS - 1, TOTAL_VFS),
    ),
    # The settings of Ethernet are refused, after what comes before them in the kernel's order.
    "infiniband": Choices(
        (
            *(*_INFINIBAND_UNSET, *_INFINIBAND_SET, {"guid": "ff:ff:ff:ff:ff:ff:ff:ff"}, *_SET[:-1], *_UNSET[:-1]),
            *({"link_state": "enable", "guid": _GUID, **one} for one in ({}, {"vlan": 5}, {"trust": True})),
        ),
        _INFINIBAND_SET,
        _INFINIBAND_UNSET,
        (),
        ["MODIFY_HCA_VPORT_CONTEXT"],
        ({}, {"guid": "02:00:00:00:00:00:00:72", "link_state": "auto"}),
        (FIRST_VFS, TOTAL_VFS - 1),
    ),
}
_EVENTS = (Step("reload"), Step("bind", 0), Step("numvfs", 0), Step("numvfs", 2), Step("numvfs", TOTAL_VFS))


def matrix(link: LinkType) -> Iterator[Case]:
    """Yield the cases that are the same in every run."""
    choices = CHOICES[link]
    ends = (*choices.set, *choices.unset)
    # To make VFs again takes a second (sriov_disable of drivers/pci/iov.c waits), so each VF of a case has its own.
    for some in _threes(choices.values):
        yield Case("each value", tuple(write(vf, **settings) for vf, settings in enumerate(some)))
    for pairs in _threes(tuple(permutations(ends, 2))):
        yield Case(
            "each order of two settings", tuple(write(vf, **one) for vf, pair in enumerate(pairs) for one in pair)
        )
    for rates in product(choices.rates, repeat=2):
        yield Case("rates of two VFs", tuple(write(vf, **one) for vf, one in enumerate(rates)))
    for command, before in product(choices.commands, choices.befores):
        for some in _threes(ends):
            yield Case("each refused command", tuple(_refused(command, before, some)))
    for number, settings in product(choices.missing, (*choices.set, choices.all_set)):
        steps = (write(number, **settings), Step("numvfs", 0), Step("numvfs", TOTAL_VFS), write(0, min_tx_rate=100))
        yield Case("VFs that do not exist", steps)
    for event, settings in product(_EVENTS, (*choices.set, choices.all_set)):
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


def random_cases(link: LinkType, seed: int, count: int) -> Iterator[Case]:
    """Yield ``count`` random sequences; a seed repeats them."""
    random = Random(seed)
    for number in range(count):
        steps = tuple(_random_step(random, CHOICES[link]) for _ in range(8))
        yield Case(f"random sequence {number} of seed {seed}", steps)


def _random_step(random: Random, choices: Choices) -> Step:
    if random.random() < 0.1:
        return random.choice(_EVENTS[:2])
    settings: dict[str, Any] = {}
    for _ in range(random.choice((1, 1, 2, 3))):
        settings |= random.choice((*choices.values, *choices.set, *choices.unset, *choices.rates))
    refused = random.choice(choices.commands) if random.random() < 0.3 else None
    return write(random.randrange(FIRST_VFS + 1), refused, **settings)
