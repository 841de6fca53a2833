"""A contract of import-linter: what decides does no I/O. `pyproject.toml` has one for each pure folder.

Two lists stand once, beside the contracts: ``io_modules`` are the modules of others that do I/O, ``edges`` are our
own in folders of which the rest is pure. A new module of a pure folder is pure until it is named there.
"""

from typing import Any

from importlinter import fields
from importlinter.contracts.forbidden import ForbiddenContract


class PureFolder(ForbiddenContract):
    """No module of a folder reaches I/O by its imports, nor does it use an edge, of this folder or another.

    ``folder`` may also be a single module. An edge's own imports do not count: nothing pure may import it.
    """

    folder = fields.StringField()

    def __init__(self, name: str, session_options: dict[str, Any], contract_options: dict[str, Any]) -> None:
        folder, edges = contract_options["folder"], session_options["edges"]
        own = [edge for edge in edges if edge.startswith(f"{folder}.")]
        options = {
            # A folder as a whole could import its own edges.
            "source_modules": [folder, f"{folder}.**"] if own else [folder],
            "forbidden_modules": [*session_options["io_modules"], *edges],
            "ignore_imports": [f"{edge} -> **" for edge in own],
        }
        super().__init__(name, session_options, contract_options | options)
