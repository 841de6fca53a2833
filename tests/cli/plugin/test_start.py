"""What `kubectl mooring` imports: little for `--help`, `version --client` and completion, and numpy to decide again."""

import asyncio
import json
import sys
from asyncio.subprocess import PIPE

import pytest

from tests.cli.plugin.cluster import Served, node, pf, pod

# Of a whole start this would take longer than all else.
SLOW = ("aiohttp", "asyncio", "kubernetes", "msgspec", "numpy", "ssl", "structlog", "yaml")
_LISTING = f"""
import sys
from cli.__main__ import main, complete
try:
    complete(sys.argv[2:]) if sys.argv[1] == "complete" else main(sys.argv[1:])
except SystemExit:
    pass
print(*sorted(set({SLOW}) & set(sys.modules)), file=sys.stderr)
"""
_WITHOUT_NUMPY = """
import sys
sys.modules["numpy"] = None
from cli.__main__ import main
sys.exit(main())
"""


async def run(code: str, *argv: str) -> tuple[int | None, str, str]:
    """Run a program of its own; return its status and outputs."""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, *argv, stdout=PIPE, stderr=PIPE)
    out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()


@pytest.mark.parametrize(
    "argv",
    [("--help",), ("pods", "--help"), ("version", "--client"), ("completion", "bash"), ("complete", "nodes", "-")],
    ids=" ".join,
)
async def test_what_needs_no_server_imports_no_library(argv: tuple[str, ...]) -> None:
    """A shell completes at each TAB."""
    status, out, err = await run(_LISTING, *argv)
    assert (status, err) == (0, "\n")
    assert out


@pytest.mark.parametrize(
    "command", ["nodes", "pods", "gpus", "groups", "top", "status", "doctor", "version", "explain x"]
)
async def test_commands_work_without_numpy(served: Served, command: str) -> None:
    """It is installed with the extra `recompute`."""
    await served.add_node(node("n1", (pf(0),)))
    await served.lead()
    await served.add_pod(pod("x", "[{}]"))
    flags = ("--kubeconfig", str(served.kubeconfig))
    status, out, err = await run(_WITHOUT_NUMPY, *command.split(), *flags)
    assert (status, err) == (1 if command in ("status", "doctor") else 0, "")
    if command.startswith("explain"):
        assert "numpy is not installed: install kubectl mooring with the extra 'recompute'" in out


async def test_to_decide_again_without_numpy_is_an_error_that_names_the_extra(served: Served) -> None:
    """Of a group too."""
    await served.add_node(node("n1", (pf(0),)))
    group = {"mooring.dev/group": json.dumps({"name": "train", "min": 1})}
    await served.add_pod(pod("x", "[{}]", annotations=group))
    for subject in ("x", "group/train"):
        argv = ("explain", subject, "--recompute", "--kubeconfig", str(served.kubeconfig))
        error = "error: --recompute: numpy is not installed: install kubectl mooring with the extra 'recompute'\n"
        assert await run(_WITHOUT_NUMPY, *argv) == (1, "", error)
