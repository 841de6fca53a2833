"""A contract of import-linter: what decides does no I/O. `pyproject.toml` lists the pure folders.

Two lists stand beside it: ``io_modules`` are the modules of others that do I/O, ``edges`` are our
own in folders of which the rest is pure. A new module of a pure folder is pure until it is named there.
"""

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from importlinter import fields
from importlinter.contracts.forbidden import ForbiddenContract

ROOT = Path(__file__).parents[2]


class PureFolders(ForbiddenContract):
    """No module of these folders reaches I/O by its imports, nor does it use an edge, of this folder or another.

    One of ``folders`` may also be a single module. An edge's own imports do not count: nothing pure may import it.
    """

    folders = fields.ListField(subfield=fields.StringField())

    def __init__(self, name: str, session_options: dict[str, Any], contract_options: dict[str, Any]) -> None:
        edges, sources, own_edges = session_options["edges"], list[str](), list[str]()
        for folder in contract_options["folders"]:
            own = [edge for edge in edges if edge.startswith(f"{folder}.")]
            # A folder as a whole could import its own edges.
            sources += [folder, f"{folder}.**"] if own else [folder]
            own_edges += own
        options = {
            "source_modules": sources,
            "forbidden_modules": [*session_options["io_modules"], *edges],
            "ignore_imports": [f"{edge} -> **" for edge in own_edges],
        }
        super().__init__(name, session_options, contract_options | options)


def pure_modules() -> Iterator[Path]:
    """Yield the modules that the contract calls pure: all of its folders but the edges, or the one module."""
    table = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    edges = [ROOT / edge.removesuffix(".*").replace(".", "/") for edge in table["edges"]]
    names = [name for one in table["contracts"] if one["type"] == "pure" for name in one["folders"]]
    for folder in (ROOT / name.replace(".", "/") for name in names):
        for path in [folder.with_suffix(".py")] if folder.with_suffix(".py").exists() else folder.rglob("*.py"):
            if not any(path.with_suffix("").is_relative_to(edge) for edge in edges):
                yield path
