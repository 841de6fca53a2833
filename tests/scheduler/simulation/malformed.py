"""Objects as no API server should send them: nearly valid ones, and ones of which hardly anything is valid."""

import json
import random
from typing import Any

STRANGE: tuple[Any, ...] = (
    *(None, True, 0, -1, 2**63, 2**70, 10**400, 1.5, -0.0, 1e308),
    *("", "x", "-5", "1e99", "1Ei", "9" * 400, "0x10", "NaN", "1,5", "\x00", "\ud7ff\U0010ffff", "n1", "mooring"),
    *([], {}, [None], [{}], [[]], {"": None}, {"cpu": "x"}, {"cpu": {"m": 1}}, [[[[]]]], ["a"] * 2000),
    {str(number): number for number in range(500)},
)
# JSON that no encoder of ours writes, put where `_HOLE` stands.
_HOLE = "PUT-HERE"
_RAW: tuple[bytes, ...] = (
    b"NaN",
    b"-Infinity",
    b'"\\ud800"',
    b'"\\udfff\\ud800x"',
    b'"\xff\xfe"',
    b"1" * 5000,
    b"1e400",
    b"-0",
    b"[" * 3000 + b"]" * 3000,
    b'{"a":' * 1200 + b"1" + b"}" * 1200,
    b'{"a":1,"a":2}',
    b'"' + b"y" * 1_048_576 + b'"',
    b'"' + b"[" * 200_000 + b'"',
    b'"[' + b"{}," * 60_000 + b'{}]"',
    b'"\\u0000"',
)


def mutate(document: Any, source: random.Random) -> Any:
    """Return a document with one value in it replaced, removed or, in a text, one character changed."""
    if isinstance(document, dict) and document and source.random() < 0.9:
        key = source.choice(sorted(document))
        changed = {name: value for name, value in document.items() if name != key or source.random() < 0.9}
        return changed | ({key: mutate(document[key], source)} if key in changed else {})
    if isinstance(document, list) and document and source.random() < 0.9:
        index = source.randrange(len(document))
        return [*document[:index], mutate(document[index], source), *document[index + 1 :]]
    if isinstance(document, str) and document and source.random() < 0.6:
        index = source.randrange(len(document))
        return document[:index] + source.choice('{}[]",:0x\u0661\ud7ff') + document[index + 1 :]
    return source.choice(STRANGE)


def wild(document: Any, source: random.Random) -> Any:
    """Return something with a document's outline and wrong types everywhere."""
    if isinstance(document, dict) and source.random() < 0.85:
        return {key: wild(value, source) for key, value in document.items() if source.random() < 0.9}
    if isinstance(document, list) and source.random() < 0.85:
        return [wild(one, source) for one in document] * source.choice((0, 1, 1, 3))
    return source.choice((document, document, document, source.choice(STRANGE)))


def pierce(document: Any, source: random.Random) -> Any:
    """Return a document in which one value is replaced by raw bytes that `line` puts in."""
    if isinstance(document, dict) and document:
        key = source.choice(sorted(document))
        return document | {key: pierce(document[key], source)}
    if isinstance(document, list) and document:
        return [pierce(document[0], source), *document[1:]]
    return _HOLE


def line(document: Any, source: random.Random, kind: str = "MODIFIED") -> bytes:
    """Return a watch's line about a document, malformed once more now and then."""
    text = json.dumps({"type": kind, "object": document}, ensure_ascii=False, separators=(",", ":")).encode()
    return text.replace(f'"{_HOLE}"'.encode(), source.choice(_RAW)).replace(b"\n", b"")
