"""Isolate the scheduler from a constraint's code: only plain answers and plain texts pass. Pure.

Objects that a constraint returns or raises have code of their own, which runs when they are compared, hashed or
printed. That is done here; the result is safe to use anywhere.
"""

from collections.abc import Callable, Hashable
from typing import TypeVar

from mooring.errors import AnnotationError
from mooring.parsing import shorten

Answer = TypeVar("Answer")


class Failed(Exception):  # noqa: N818 - an outcome that becomes a reason
    """A constraint's code has raised an exception that is not an answer; the message is plain text."""


def heard(ask: Callable[[], Answer], answers: tuple[type[Exception], ...]) -> Answer:
    """Return the answer; raise one of ``answers``, or `Failed`, with a plain text and no other object of the
    constraint.
    """
    try:
        return ask()
    except BaseException as raised:  # noqa: BLE001 - whatever it raises concerns one pod or one node, CancelledError too
        raise _plain(raised, answers) from None


def steady(value: Hashable) -> Hashable:
    """Return a value that hashes and compares as a value; raise TypeError, or what the value itself raises."""
    if hash(value) != hash(value) or (value == value) is not True:
        raise TypeError(f"{shorten(value)} does not equal itself")
    return value


def _plain(raised: BaseException, answers: tuple[type[Exception], ...]) -> Exception:
    if type(raised) is AnnotationError and ValueError in answers:
        return AnnotationError(_text(raised.key), _text(raised.path), _text(raised.rule))
    answer = next((kind for kind in answers if isinstance(raised, kind)), None)
    if answer is not None:
        return answer(_text(raised))
    return Failed(f"{type(raised).__name__}: {shorten(_text(raised))}")


def _text(said: object) -> str:
    try:
        return str(said)
    except BaseException as raised:  # noqa: BLE001 - as above
        return type(raised).__name__
