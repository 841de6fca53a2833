"""One way to log: on stderr, one JSON object a line, or coloured text on a terminal.

Fields by name: ts, level, program, event (a fixed text); node, pod (``namespace/name``), uid, pci and reason
as they apply.
"""

import json
import logging
import sys

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

# Made once: `json.dumps` makes one for every line.
_encode = json.JSONEncoder(default=repr).encode


def set_up(program: str, level: int = logging.INFO) -> None:
    """Configure structlog for a whole program; call once, in ``__main__``."""
    on_terminal = sys.stderr.isatty()
    structlog.configure(
        processors=[
            _named(program),
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True, key="ts"),
            structlog.processors.format_exc_info,
            structlog.dev.ConsoleRenderer() if on_terminal else _as_json,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )


def _named(program: str) -> Processor:
    def name(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
        event["program"] = program
        return event

    return name


def _as_json(_: WrappedLogger, __: str, event: EventDict) -> str:
    return _encode(event)
