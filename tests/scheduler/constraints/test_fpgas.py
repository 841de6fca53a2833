"""The FPGAs of docs/examples: whole FPGAs by PCI address, under the PCIe switch of the pod's VF."""

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mooring.parsing import dump
from scheduler.constraints.kinds import Kinds
from scheduler.cycle.decisions import Bind
from tests.scheduler.conftest import Json
from tests.scheduler.constraints.conftest import REPO, StartLife
from tests.scheduler.constraints.life import KindStory, assignment_of, units_of
from tests.scheduler.story import play, stories


def _path(switch: int, port: int) -> tuple[str, ...]:
    return (f"0000:00:0{switch}.0", f"0000:{switch + 1}0:00.0", f"0000:{switch + 1}1:{port:02x}.0")


class Hosts(KindStory):
    """The verbs of the stories: nodes with some VFs, and some FPGAs, under each of their switches."""

    def host(self, vfs: str, fpgas: str, name: str = "n1") -> None:
        """Show a node, as in ``host 4,4 2,4``."""
        self.show_host(_numbers(vfs), _numbers(fpgas), name)

    def show_host(self, vfs: Sequence[int], fpgas: Sequence[int], name: str = "n1") -> None:
        pfs = [self.life.make_pf(index, count, pcie=_path(index, 0)) for index, count in enumerate(vfs) if count]
        counts = [(switch, number) for switch, count in enumerate(fpgas) for number in range(count)]
        listed = [
            {"pci": f"0000:{switch + 1}{number + 2:x}:00.0", "pcie": _path(switch, number + 1)}
            for switch, number in counts
        ]
        self.life.show_node(name, *pfs, fpga=dump({"v": 1, "fpgas": listed}))

    def pod(self, request: str, beside: str) -> str:
        """Place a pod with as many FPGAs as ``beside`` lists, beside these interfaces or, with "-", anywhere.

        Return the switches of its VFs and its FPGAs, and its node if it is not n1, or why it waits.
        """
        interfaces = (None if one == "-" else int(one) for one in beside.split(","))
        self.come(f"p{len(self.pods)}", **_fields(json.loads(request), *interfaces))
        return self.decide()

    def given(self, bind: Bind) -> str:
        node = "" if bind.assigned.node == "n1" else f" {bind.assigned.node}"
        return "/".join(",".join(map(str, switches)) for switches in _switches(bind)) + node


def _fields(request: object, *beside: int | None) -> Json:
    asked = dump([{} if interface is None else {"beside": interface} for interface in beside])
    return {"request": request or None, "fpga": asked}


def _numbers(text: str) -> list[int]:
    return [int(one) for one in text.split(",") if one != "-"]


def _switches(found: Bind) -> tuple[list[int], list[int]]:
    """Return the switches of a pod's VFs and of its FPGAs."""
    return [int(vf.pf[2:]) for vf in assignment_of(found).vfs], [int(pci[5]) - 1 for pci in units_of(found, "fpga")]


@pytest.fixture
def hosts(fpgas: Kinds, start_life: StartLife) -> Hosts:
    return Hosts(start_life(fpgas))


STORIES = {
    "each lies beside its interface, under the switch with the fewest free FPGAs that suffice": """
        host 4,4 2,4 | pod [{}] 0,0 > 0/0,0 | pod [{},{}] 0,1,1 > 1,1/1,1,1 | pod [{}] - > 0/1
        | pod [{}] 0 > not enough free FPGAs.""",
    # Neither kind is placed before the other.
    "no VF is given without an FPGA beside it, and no FPGA whose NIC is full": """
        host 1,4 4,1 | pod [{}] 0 > 1/1 | pod [{}] 0 > 0/0 | pod [{}] 0 > free fpga, vfs do not fit together.
        | pod [{}] -,- > 1/0,0""",
    "a PF that the interface selects or excludes is so for the FPGA too": """
        host 4,4,4 1,2,3 | pod [{"pf":"pf2"}] 0,0 > 2/2,2
        | pod [{"min_tx_rate":60000},{"min_tx_rate":60000}] 0,1 > 0,2/0,2""",
    # Also on a node without VFs.
    "a pod without VFs gets FPGAs anywhere, but none beside an interface": """
        host - 2 | pod [] - > /0
        | pod [] 0 > annotation 'mooring.dev/request.fpga'[0].beside: there is no interface 0: the pod asks for 0""",
    # Whole nodes stay free for pods that need them.
    "the node with the fewest free FPGAs is preferred": "host 4 8 large | host 4 1 small | pod [] - > /0 small",
}


@stories(STORIES)
def test_fpgas(story: str, hosts: Hosts) -> None:
    play(hosts, story)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ('{"v":1}', "field 'fpgas' is missing"),
        ('{"v":1,"fpgas":[{"pci":"x","pcie":[]}]}', ".fpgas[0].pci: 'x' is not a PCI address"),
        ('{"v":1,"fpgas":[{"pci":"0000:05:00.0","pcie":[]},{"pci":"0000:05:00.0","pcie":[]}]}', "is listed twice"),
    ],
)
def test_a_bad_inventory_is_refused_by_name(text: str, rule: str, hosts: Hosts) -> None:
    (notice,) = hosts.life.show_node(fpga=text)
    assert rule in str(notice)


SWITCHES = 3
_counts = st.lists(st.integers(0, 3), min_size=SWITCHES, max_size=SWITCHES)


@settings(max_examples=150)
@given(vfs=_counts, fpgas_free=_counts, wanted=st.lists(st.integers(0, 2), max_size=4), anywhere=st.integers(0, 2))
def test_a_placement_is_found_exactly_if_there_is_one(
    vfs: Sequence[int],
    fpgas_free: Sequence[int],
    wanted: Sequence[int],
    anywhere: int,
    fpgas: Kinds,
    start_life: StartLife,
) -> None:
    """Compared with a search over every way to put the interfaces under the switches."""
    hosts = Hosts(start_life(fpgas))
    hosts.show_host(vfs, fpgas_free)
    beside = [interface for interface, count in enumerate(wanted) for _ in range(count)]
    asked = _fields([{}] * len(wanted), *beside, *[None] * anywhere)
    found = hosts.life.outcome(hosts.life.asking(**asked))
    assert isinstance(found, Bind) == _possible(vfs, fpgas_free, wanted, anywhere)
    if isinstance(found, Bind) and (beside or anywhere):
        assert len(set(units_of(found, "fpga"))) == len(beside) + anywhere
        of_vfs, of_fpgas = _switches(found)
        assert of_fpgas[: len(beside)] == [of_vfs[interface] for interface in beside]


def _possible(vfs: Sequence[int], fpgas_free: Sequence[int], wanted: Sequence[int], anywhere: int) -> bool:
    if sum(wanted) + anywhere > sum(fpgas_free):
        return False
    for lie in itertools.product(range(SWITCHES), repeat=len(wanted)):
        used = [sum(count for count, at in zip(wanted, lie, strict=True) if at == switch) for switch in range(SWITCHES)]
        enough = all(lie.count(switch) <= vfs[switch] for switch in range(SWITCHES))
        if enough and all(one <= free for one, free in zip(used, fpgas_free, strict=True)):
            return True
    return False


def test_the_package_is_found_when_it_is_installed(tmp_path: Path) -> None:
    """Installed by pip beside the scheduler, without a network, it is loaded by its entry point."""
    command = ["install", "--quiet", "--no-index", "--no-deps", "--no-build-isolation", "--target", str(tmp_path)]
    site = {"PYTHONPATH": str(tmp_path), "TMPDIR": str(tmp_path.parent)}
    environment = {**os.environ, **site, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    source = str(REPO / "docs/examples/fpga")
    subprocess.run([sys.executable, "-m", "pip", *command, source], check=True, env=environment)
    code = "from scheduler.server import startup; print([(k.name, k.defect) for k in startup.installed_kinds()])"
    found = subprocess.run([sys.executable, "-c", code], check=True, env=environment, cwd=REPO, stdout=subprocess.PIPE)
    assert found.stdout.decode().splitlines()[-1] == "[('fpga', ''), ('gpu', '')]"
