"""One way to log: on stderr, one JSON object a line, or coloured text on a terminal.

Fields by name: ts, level, program, event (a fixed text); node, pod (``namespace/name``), uid, pci and reason
as they apply.
"""

import logging
import sys

import structlog


def set_up(program: str, level: int = logging.INFO) -> None:
    """Configure structlog for a whole program; call once, in ``__main__``."""
    on_terminal = sys.stderr.isatty()
    last = structlog.dev.ConsoleRenderer() if on_terminal else structlog.processors.JSONRenderer()
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True, key="ts"),
            structlog.processors.format_exc_info,
            last,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    structlog.contextvars.bind_contextvars(program=program)
