"""Isolate the scheduler from a constraint's code: what it raises becomes a plain text. Pure."""

from collections.abc import Callable
from typing import TypeVar

from mooring.parsing import shorten

Answer = TypeVar("Answer")


class Failed(Exception):  # noqa: N818 - an outcome that becomes a reason
    """A constraint's code has raised an exception that is not an answer; the message is plain text."""


def isolate(ask: Callable[[], Answer], answers: tuple[type[Exception], ...]) -> Answer:
    """Return the answer; raise one of ``answers``, or `Failed` with the text of any other exception."""
    try:
        return ask()
    except answers:
        raise
    except BaseException as exception:  # noqa: BLE001 - CancelledError too concerns one pod or node
        raise Failed(f"{type(exception).__name__}: {shorten(str(exception))}") from None
