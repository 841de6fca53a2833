"""What `docs/gpus.md` shows of `mooring-advertiser show --gpus` is what it prints for the host that the page names."""

import io
import re
from pathlib import Path

from rich.console import Console

from advertiser.inventory.build_inventory import InventoryResult
from advertiser.show import print_table
from mooring.annotations.inventory import Inventory
from tests.advertiser.gpu.trees import build_host, load_host
from tests.docs.pages import section

HOST, OUT = "hgx-h100", "0000:43:00.0"


def _words(line: str) -> list[str]:
    """Return a line's words, without the lines of a table."""
    return [word for word in line.split() if word.isascii()]


def test_each_line_of_the_example_is_one_of_the_hosts(tmp_path: Path) -> None:
    """The page leaves lines out, and the table's borders."""
    host = build_host(tmp_path, load_host(HOST))
    assert host.nvml is not None
    host.nvml.gpus[host.gpus.index(OUT)].MigMode = [1, 1]
    console = Console(file=io.StringIO(), width=200)
    print_table(InventoryResult(Inventory("", ()), ()), "n1", console, host.sources().inventory("n1"))
    assert isinstance(console.file, io.StringIO)
    printed = [_words(line) for line in console.file.getvalue().splitlines()]
    look = section("gpus.md", "Look")
    assert f"tests/advertiser/gpu/hosts/{HOST}.yaml" in look
    # A line that is indented further continues the one before.
    lines = re.sub(r"\n {6,}", " ", look[look.index("    n1: ") :].split("\n\n")[0]).splitlines()
    shown = [_words(line) for line in lines]
    assert len(shown) == 5
    assert [line for line in shown if line not in printed] == []
