"""Which runtime handlers' pods the CRI shim gives VFs, ``<run>/extract/runtime-handlers.json``: by the shim.

    {"v":1,"handlers":["crun","nvidia","runc"]}

The shim writes it when it starts, and the advertiser publishes the names in the inventory. A field that a reader does
not know is ignored: the programs may be of different versions while a node is upgraded.
"""

from collections.abc import Collection

from mooring.errors import RecordError
from mooring.parsing import Value, dump, parse
from mooring.records.extract import FOLDER

NAME = f"{FOLDER}/runtime-handlers.json"
MOST_HANDLERS = 64
# A handler is a DNS label. Source: ValidateRuntimeClass in Kubernetes' pkg/apis/node/validation/validation.go.
LONGEST_HANDLER = 63


def read_runtime_handlers(text: str) -> frozenset[str]:
    """Read the file's text; raise RecordError."""
    return handlers(parse(text, NAME, RecordError).version(1).fields().required("handlers"))


def dump_runtime_handlers(names: Collection[str]) -> str:
    return dump({"v": 1, "handlers": sorted(names)[:MOST_HANDLERS]})


def handlers(value: Value) -> frozenset[str]:
    """Read a list of handlers' names, in a record or an inventory."""
    return frozenset(handler.string(LONGEST_HANDLER) for handler in value.items(MOST_HANDLERS))
