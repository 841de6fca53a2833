"""Stories: what happens, step by step, as in ``nodes n1..3 vfs=4 | come a b | wait 1 > a b``.

Bars separate steps. A step is a verb with its words, and the scene's method of that name plays it; ``key=value`` is an
argument of that name. What the method returns is the step's answer, and a story gives it after ``>``. A step without
``>`` has the empty answer, which is also that of all that only happens. A step that fails names itself in the error.

``m0..2`` stands for the words m0, m1 and m2, and ``1*3`` for 1, 1 and 1. Amounts follow a name: ``n1:2`` has or wants
two VFs, ``n1@8`` eight cpus, and ``a^7`` has the priority 7. With ``later 5`` time passes; with ``wait 5`` the
scheduler works too, and what it decides is carried out. The docstrings of scenes explain their own words.
"""

import re
from collections.abc import Iterator, Mapping

import pytest

_FIELD = re.compile(r"([\w./-]+)=(.*)")


def play(scene: object, story: str) -> None:
    for number, step in enumerate(story.split("|"), 1):
        event, _, expected = step.partition(">")
        verb, *words = words_of(event)
        fields = {match[1]: match[2] for word in words if (match := _FIELD.fullmatch(word))}
        try:
            answer = getattr(scene, verb)(*(word for word in words if not _FIELD.fullmatch(word)), **fields) or ""
            assert answer == " ".join(words_of(expected)), f"the answer is {answer!r}"
        except Exception as error:
            error.add_note(f"step {number}: {' '.join(step.split())}")
            raise


def words_of(text: str) -> Iterator[str]:
    for word in text.split():
        if span := re.fullmatch(r"(.*?)(\d+)\.\.(\d+)", word):
            yield from (f"{span[1]}{number}" for number in range(int(span[2]), int(span[3]) + 1))
        elif copies := re.fullmatch(r"(.*)\*(\d+)", word):
            yield from [copies[1]] * int(copies[2])
        else:
            yield word


def stories(table: Mapping[str, str], **variants: Mapping[str, str]) -> pytest.MarkDecorator:
    """Parametrize a test by stories, each named by what it shows.

    A word in capitals stands for steps or words: a story with it is played once for each variant.
    """
    rows = dict(table)
    for word, texts in variants.items():
        rows = {
            f"{name}, {variant}" if word in story else name: re.sub(r"\|\s*(?=\|)", "", story.replace(word, text))
            for name, story in rows.items()
            for variant, text in (texts.items() if word in story else [("", "")])
        }
    return pytest.mark.parametrize("story", rows.values(), ids=rows.keys())
