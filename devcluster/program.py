"""From the command line to the exit status: shared by devcluster's programs with options of their own."""

import asyncio
import sys
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import structlog

from mooring.kube.access import AccessError
from mooring.program import log
from mooring.program.config import Config, ConfigError, load


def main(
    kind: type[Config], name: str, run: Callable[[Config], Coroutine[Any, Any, None]], environment: Mapping[str, str]
) -> int:
    """Run a program with its options; return its exit status: 0, 1 without access to an API server, 2 wrong options."""
    try:
        _, options = load(kind, name, sys.argv[1:], environment)
    except ConfigError as wrong:
        print(f"{name}: {wrong}", file=sys.stderr)
        return 2
    log.set_up(name)
    try:
        asyncio.run(run(options))
    except AccessError as unusable:
        structlog.get_logger().error("ended", reason=str(unusable))
        return 1
    return 0
