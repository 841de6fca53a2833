"""The FPGAs of docs/examples: whole FPGAs by PCI address, under the PCIe switch of the pod's VF."""

import itertools
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mooring.parsing import dump
from scheduler.constraints.kinds import Kinds
from scheduler.cycle.decisions import Bind
from scheduler.kube.objects import Node, Pod
from tests.scheduler.conftest import MakeNode, MakePf, MakePod
from tests.scheduler.constraints.conftest import REPO, StartLife
from tests.scheduler.constraints.life import Life, assignment_of, units_of

INVENTORY, REQUEST = "mooring.dev/inventory.fpga", "mooring.dev/request.fpga"
NONE = "0/1 nodes are available: 1 "


def _path(switch: int, port: int) -> tuple[str, ...]:
    return (f"0000:00:0{switch}.0", f"0000:{switch + 1}0:00.0", f"0000:{switch + 1}1:{port:02x}.0")


def _fpga(switch: int, number: int) -> str:
    return f"0000:{switch + 1}{number + 2:x}:00.0"


def _fpgas(counts: Sequence[int]) -> dict[str, str]:
    """Return an inventory with so many FPGAs under each switch."""
    listed = [
        {"pci": _fpga(switch, number), "pcie": _path(switch, number + 1)}
        for switch, count in enumerate(counts)
        for number in range(count)
    ]
    return {INVENTORY: dump({"v": 1, "fpgas": listed})}


def _asking(*beside: int | None) -> dict[str, str]:
    return {REQUEST: dump([{} if interface is None else {"beside": interface} for interface in beside])}


@pytest.fixture
def make_host(make_node: MakeNode, make_pf: MakePf) -> Callable[..., Node]:
    """Make a node with a PF under each switch, with so many ``vfs`` and ``fpgas``."""

    def make(vfs: Sequence[int], fpgas: Sequence[int], name: str = "n1") -> Node:
        pfs = tuple(make_pf(index, count, pcie=_path(index, 0)) for index, count in enumerate(vfs) if count)
        return make_node(name, pfs, annotations=_fpgas(fpgas))

    return make


@pytest.fixture
def life(fpgas: Kinds, start_life: StartLife) -> Life:
    return start_life(fpgas)


def _switches(life: Life, pod: Pod) -> tuple[list[int], list[int]]:
    """Place a pod; return the switches of its VFs and of its FPGAs."""
    found = life.place(pod)
    units = units_of(found, "fpga")
    assert isinstance(units, list)
    return [int(vf.pf[2:]) for vf in assignment_of(found).vfs], [int(pci[5]) - 1 for pci in units]


def test_fpgas_come_from_the_switch_of_the_vf(life: Life, make_host: MakeNode, make_pod: MakePod) -> None:
    """Each beside its interface; the switch with the fewest free FPGAs that suffices is taken first."""
    life.see(make_host((4, 4), (2, 4)))
    assert _switches(life, make_pod(request=[{}], annotations=_asking(0, 0))) == ([0], [0, 0])
    assert _switches(life, make_pod(request=[{}, {}], annotations=_asking(0, 1, 1))) == ([1, 1], [1, 1, 1])
    assert _switches(life, make_pod(request=[{}], annotations=_asking(None))) == ([0], [1])
    assert life.place(make_pod(request=[{}], annotations=_asking(0))) == f"{NONE}not enough free FPGAs."


def test_a_vf_without_a_fpga_beside_it_is_not_given(life: Life, make_host: MakeNode, make_pod: MakePod) -> None:
    """Nor an FPGA whose NIC is full: neither kind is placed before the other."""
    life.see(make_host((1, 4), (4, 1)))
    assert _switches(life, make_pod(request=[{}], annotations=_asking(0))) == ([1], [1])
    assert _switches(life, make_pod(request=[{}], annotations=_asking(0))) == ([0], [0])
    pod = make_pod(request=[{}], annotations=_asking(0))
    assert life.place(pod) == f"{NONE}free fpga, vfs do not fit together."
    assert _switches(life, make_pod(request=[{}], annotations=_asking(None, None))) == ([1], [0, 0])


def test_a_selector_of_the_interface_moves_the_fpga(life: Life, make_host: MakeNode, make_pod: MakePod) -> None:
    """The interface selects a PF, so the FPGA is there; one that it excludes is excluded for the FPGA too."""
    life.see(make_host((4, 4, 4), (1, 2, 3)))
    assert _switches(life, make_pod(request=[{"pf": "pf2"}], annotations=_asking(0, 0))) == ([2], [2, 2])
    rates = [{"min_tx_rate": 60_000}, {"min_tx_rate": 60_000}]
    vfs, found = _switches(life, make_pod(request=rates, annotations=_asking(0, 1)))
    assert vfs == found
    assert len(set(vfs)) == 2


def test_a_pod_without_vfs_gets_fpgas_anywhere(life: Life, make_host: MakeNode, make_pod: MakePod) -> None:
    """Also on a node without VFs; an FPGA beside an interface that the pod does not have cannot be placed."""
    life.see(make_host((), (2,)))
    assert _switches(life, make_pod(annotations=_asking(None))) == ([], [0])
    expected = "annotation 'mooring.dev/request.fpga'[0].beside: there is no interface 0: the pod asks for 0"
    assert life.place(make_pod(annotations=_asking(0))) == expected


def test_the_node_with_the_fewest_free_fpgas_is_preferred(life: Life, make_host: MakeNode, make_pod: MakePod) -> None:
    """Whole nodes stay free for pods that need them."""
    life.see(make_host((4,), (8,), "large"), make_host((4,), (1,), "small"))
    found = life.place(make_pod(annotations=_asking(None)))
    assert isinstance(found, Bind)
    assert found.assigned.node == "small"


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ('{"v":1}', "field 'fpgas' is missing"),
        ('{"v":1,"fpgas":[{"pci":"x","pcie":[]}]}', ".fpgas[0].pci: 'x' is not a PCI address"),
        ('{"v":1,"fpgas":[{"pci":"0000:05:00.0","pcie":[]},{"pci":"0000:05:00.0","pcie":[]}]}', "is listed twice"),
    ],
)
def test_a_bad_inventory_is_refused_by_name(text: str, rule: str, life: Life, make_node: MakeNode) -> None:
    (notice,) = life.see(make_node(annotations={INVENTORY: text}))
    assert rule in str(notice)


SWITCHES = 3
_counts = st.lists(st.integers(0, 3), min_size=SWITCHES, max_size=SWITCHES)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(vfs=_counts, fpgas_free=_counts, wanted=st.lists(st.integers(0, 2), max_size=4), anywhere=st.integers(0, 2))
def test_a_placement_is_found_exactly_if_there_is_one(
    vfs: Sequence[int],
    fpgas_free: Sequence[int],
    wanted: Sequence[int],
    anywhere: int,
    fpgas: Kinds,
    start_life: StartLife,
    make_host: MakeNode,
    make_pod: MakePod,
) -> None:
    """Compared with a search over every way to put the interfaces under the switches."""
    life = start_life(fpgas)
    life.see(make_host(vfs, fpgas_free))
    beside = [interface for interface, count in enumerate(wanted) for _ in range(count)]
    pod = make_pod(request=[{}] * len(wanted), annotations=_asking(*beside, *[None] * anywhere))
    found = life.place(pod)
    possible = _possible(vfs, fpgas_free, wanted, anywhere)
    assert isinstance(found, Bind) == possible
    if isinstance(found, Bind) and (beside or anywhere):
        _check(found, beside)


def _possible(vfs: Sequence[int], fpgas_free: Sequence[int], wanted: Sequence[int], anywhere: int) -> bool:
    if sum(wanted) + anywhere > sum(fpgas_free):
        return False
    for lie in itertools.product(range(SWITCHES), repeat=len(wanted)):
        used = [sum(count for count, at in zip(wanted, lie, strict=True) if at == switch) for switch in range(SWITCHES)]
        enough = all(lie.count(switch) <= vfs[switch] for switch in range(SWITCHES))
        if enough and all(one <= free for one, free in zip(used, fpgas_free, strict=True)):
            return True
    return False


def _check(found: Bind, beside: Sequence[int]) -> None:
    units, vfs = units_of(found, "fpga"), assignment_of(found).vfs
    assert isinstance(units, list)
    assert len(set(units)) == len(units)
    for pci, interface in zip(units, beside, strict=False):
        assert int(pci[5]) - 1 == int(vfs[interface].pf[2:])


def test_the_package_is_found_when_it_is_installed(tmp_path: Path) -> None:
    """Installed by pip beside the scheduler, without a network, it is loaded by its entry point."""
    command = ["install", "--quiet", "--no-index", "--no-deps", "--no-build-isolation", "--target", str(tmp_path)]
    environment = _environment(tmp_path)
    source = str(REPO / "docs/examples/fpga")
    subprocess.run([sys.executable, "-m", "pip", *command, source], check=True, env=environment)
    code = "from scheduler.server import startup; print([(k.name, k.defect) for k in startup.installed_kinds()])"
    found = subprocess.run([sys.executable, "-c", code], check=True, env=environment, cwd=REPO, stdout=subprocess.PIPE)
    assert found.stdout.decode().splitlines()[-1] == "[('fpga', ''), ('gpu', '')]"


def _environment(site: Path) -> Mapping[str, str]:
    return {**os.environ, "PYTHONPATH": str(site), "PIP_DISABLE_PIP_VERSION_CHECK": "1", "TMPDIR": str(site.parent)}
