"""JSON keeps all of itself but what is nested beyond reason."""

import json
import random
from typing import Any

import msgspec
import pytest

from mooring.kube.nesting import cut_deep_nesting

ODD = ["", "[", "}]", '"', "\\", '\\"', "é", "[" * 150]


def value(chance: random.Random, levels: int) -> Any:
    """Return JSON of at most so many levels, with brackets and quotes in its strings."""
    if levels == 0 or chance.random() < 0.2:
        return chance.choice([None, True, 1.5, *ODD])
    inner = [value(chance, levels - 1) for _ in range(chance.randrange(3))]
    return inner if chance.random() < 0.5 else {chance.choice(ODD) + str(key): one for key, one in enumerate(inner)}


def nested(inner: Any, levels: int) -> Any:
    for level in range(levels):
        inner = {"x": inner, "y": "]"} if level % 2 else [inner, 1]
    return inner


def cut(whole: Any, left: int = 100) -> Any:
    """Do the same plainly."""
    if not isinstance(whole, dict | list):
        return whole
    if left == 0:
        return None
    if isinstance(whole, list):
        return [cut(one, left - 1) for one in whole]
    return {key: cut(one, left - 1) for key, one in whole.items()}


@pytest.mark.parametrize("levels", [0, 90, 97, 98, 99, 100, 101, 150])
def test_only_what_is_too_deep_becomes_null(levels: int) -> None:
    """The rest is kept, whatever the strings contain, and wherever the deep parts are."""
    chance = random.Random(levels)
    for _ in range(50):
        whole = [value(chance, 4), nested(value(chance, 6), levels), value(chance, 4)]
        for text in (json.dumps(whole), json.dumps(whole, ensure_ascii=False, indent=1)):
            assert json.loads(cut_deep_nesting(text.encode())) == cut(whole)


@pytest.mark.parametrize(
    "text", [b"[" * 10_000, b'{"a":"' + b"[" * 10_000, b"]" * 10_000, b"[" * 200 + b"]" * 199, b""]
)
def test_what_is_not_json_is_none_after_it(text: bytes) -> None:
    """The decoder still refuses it for its grammar, not for its depth."""
    with pytest.raises(msgspec.DecodeError):
        msgspec.json.decode(cut_deep_nesting(text))
