"""Documents of the wrong shape: a right one with one of its values replaced, or left out."""

from collections.abc import Iterator, Sequence
from typing import Any

WRONG: Sequence[Any] = (None, True, 7, -1.5, "", "text", [], [7], [None], ["text"], [{}], {}, {"a": 7}, {"type": 7})


def wrong_shapes(document: Any) -> Iterator[Any]:
    """Yield the document with each of its values, itself too, replaced by each wrong one, and with each left out."""
    yield from WRONG
    if isinstance(document, dict):
        for name, value in document.items():
            yield {key: kept for key, kept in document.items() if key != name}
            yield from ({**document, name: wrong} for wrong in wrong_shapes(value))
    elif isinstance(document, list):
        for index, value in enumerate(document):
            yield from ([*document[:index], wrong, *document[index + 1 :]] for wrong in wrong_shapes(value))
