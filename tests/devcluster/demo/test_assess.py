"""`./run demo --assess` finds each planted fault and nothing else, and its page names them."""

import asyncio
import io
from pathlib import Path

from rich.console import Console

from devcluster.demo.assess import demonstrate
from devcluster.demo.plugin_cluster import PLANTED


async def test_the_demonstration_finds_what_it_planted(tmp_path: Path) -> None:
    shown, page = io.StringIO(), tmp_path / "report.html"
    status = await asyncio.to_thread(demonstrate, Console(file=shown, width=200), str(page))
    assert status == 0, shown.getvalue()
    assert f"{len(PLANTED)} of {len(PLANTED)} planted faults found, 0 others" in shown.getvalue()
    assert "jobs that were started by halves" in page.read_text()
