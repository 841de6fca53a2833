"""Structured logs on stderr: one JSON object per line, or coloured text on a terminal.

Every line has the fields ts, level, program and event (a fixed text). Other fields are node, pod (``namespace/name``),
uid, pci and reason.
"""

import json
import logging
import sys
from datetime import UTC, datetime

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger


def _plain(value: object) -> str:
    return value.isoformat().replace("+00:00", "Z") if isinstance(value, datetime) else repr(value)


# Created once, because `json.dumps` would create an encoder for every line.
_encode = json.JSONEncoder(default=_plain).encode


def as_json(event: EventDict) -> bytes:
    """Return an event as JSON, whatever its fields contain."""
    return _encode(event).encode()


def set_up(program: str, level: int = logging.INFO) -> None:
    """Configure structlog for the program; call it once, in ``__main__``."""
    on_terminal = sys.stderr.isatty()
    structlog.configure(
        processors=[
            _add_program(program),
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True, key="ts") if on_terminal else _add_time,
            structlog.processors.format_exc_info,
            structlog.dev.ConsoleRenderer() if on_terminal else _render,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=(
            structlog.WriteLoggerFactory(sys.stderr) if on_terminal else structlog.BytesLoggerFactory(sys.stderr.buffer)
        ),
        cache_logger_on_first_use=True,
    )
    logging.basicConfig(handlers=[_LibraryHandler()])


class _LibraryHandler(logging.Handler):
    """Logs what libraries report by `logging`, such as asyncio, as the program's own lines."""

    def emit(self, record: logging.LogRecord) -> None:
        structlog.get_logger().log(
            record.levelno,
            "a library reports",
            library=record.name,
            reason=record.getMessage(),
            exc_info=record.exc_info,
        )


def _add_program(program: str) -> Processor:
    def name(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
        event["program"] = program
        return event

    return name


def _add_time(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    event["ts"] = datetime.now(UTC)
    return event


def _render(_: WrappedLogger, __: str, event: EventDict) -> bytes:
    return as_json(event)
