"""The two examples as kinds: the toy of the documentation, run from its page, and the FPGAs of docs/examples."""

import sys
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path

import pytest

from scheduler.constraints.kinds import Kinds
from scheduler.server.startup import GROUP, load_kinds
from tests.scheduler.conftest import MakeNode, MakePf, MakePod
from tests.scheduler.constraints.life import Life
from tests.scheduler.server.conftest import cluster

__all__ = ["cluster"]

REPO = Path(__file__).parents[3]


@pytest.fixture(scope="session")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Write the toy's code and entry point as the page shows them, where Python finds installed packages."""
    folder = tmp_path_factory.mktemp("site")
    page = (REPO / "docs/constraints.md").read_text()
    code, project = (page.split(f"```{language}\n")[1].split("```")[0] for language in ("python", "toml"))
    (folder / "mooring_licences.py").write_text(code)
    info = folder / "mooring_licences-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mooring-licences\nVersion: 0.1.0\n")
    points = project.split('[project.entry-points."mooring.constraints"]\n')[1].replace('"', "")
    (info / "entry_points.txt").write_text(f"[{GROUP}]\n{points}")
    sys.path.insert(0, str(folder))
    yield folder
    sys.path.remove(str(folder))
    sys.modules.pop("mooring_licences", None)


@pytest.fixture
def licences(toy: Path) -> Kinds:
    """Load the toy by its entry point."""
    found = metadata.entry_points(group=GROUP).select(name="licence")
    assert toy.exists()
    return load_kinds(found)


@pytest.fixture
def fpgas(monkeypatch: pytest.MonkeyPatch) -> Kinds:
    """Load the FPGAs from their source; another test installs them."""
    monkeypatch.syspath_prepend(str(REPO / "docs/examples/fpga"))
    return load_kinds([metadata.EntryPoint("fpga", "mooring_fpga.constraint:Fpgas", GROUP)])


StartLife = Callable[[Kinds], Life]


@pytest.fixture
def start_life(make_node: MakeNode, make_pf: MakePf, make_pod: MakePod) -> Iterator[StartLife]:
    """Start machines; what they keep is proved when the test ends."""
    started: list[Life] = []

    def start(kinds: Kinds) -> Life:
        started.append(Life(kinds, make_node, make_pf, make_pod))
        return started[-1]

    yield start
    for life in started:
        life.machine.check()
