"""Stories: steps "verb words > answer" between bars; the method of that name plays a step and returns its answer.

``m0..2`` stands for the words m0, m1 and m2.
"""

import re
from collections.abc import Iterator, Mapping

import pytest


def play(scene: object, story: str) -> None:
    """Play a story; a step without ">" has the empty answer, which is also that of all that only happens."""
    for number, step in enumerate(story.split("|"), 1):
        event, _, expected = step.partition(">")
        verb, *words = words_of(event)
        try:
            answer = getattr(scene, verb)(*words) or ""
        except AssertionError as error:
            error.add_note(f"step {number}, {step.strip()}")
            raise
        assert answer == " ".join(words_of(expected)), f"step {number}, {step.strip()}: {answer}"


def words_of(text: str) -> Iterator[str]:
    for word in text.split():
        span = re.fullmatch(r"(\D*)(\d+)\.\.(\d+)", word)
        yield from [f"{span[1]}{number}" for number in range(int(span[2]), int(span[3]) + 1)] if span else [word]


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
