"""Patterns for PF names with the semantics of `fnmatch.fnmatchcase`, cheap to create.

fnmatch compiles a regular expression for each pattern, up to a millisecond for 64 characters, and a pod may have 64
patterns. The name of a PF is short: here it is compared directly, in at most the product of both lengths.
"""

from typing import NamedTuple


class _OneOf(NamedTuple):
    """One character: one of these, or with ``is_negated`` none of these."""

    characters: frozenset[str]
    is_negated: bool = False

    def matches(self, character: str) -> bool:
        return (character in self.characters) != self.is_negated


_ANY = _OneOf(frozenset(), is_negated=True)
# None stands for any number of characters.
_Tokens = list[_OneOf | None]


class Glob:
    """A pattern: ``*`` is any text, ``?`` any character, ``[a-c]`` and ``[!a-c]`` are sets."""

    def __init__(self, pattern: str) -> None:
        self._tokens = _tokens(pattern)

    def matches(self, name: str) -> bool:
        """Return whether the whole name matches; of several ``*`` only the last one is ever extended."""
        tokens, place, at = self._tokens, 0, 0
        star, star_end = -1, 0
        while at < len(name):
            token = tokens[place] if place < len(tokens) else _NOTHING
            if token is None:
                star, star_end = place, at
                place += 1
                if place == len(tokens):
                    # Most patterns end with ``*``: the rest of the name matches.
                    return True
            elif token.matches(name[at]):
                place, at = place + 1, at + 1
            elif star < 0:
                return False
            else:
                star_end += 1
                place, at = star + 1, star_end
        return all(token is None for token in tokens[place:])


_NOTHING = _OneOf(frozenset())


def _tokens(pattern: str) -> _Tokens:
    tokens: _Tokens = []
    at = 0
    while at < len(pattern):
        end = _end_of_set(pattern, at) if pattern[at] == "[" else -1
        if end >= 0:
            tokens.append(_set(pattern[at + 1 : end]))
            at = end
        elif pattern[at] == "*":
            tokens.append(None)
        else:
            tokens.append(_ANY if pattern[at] == "?" else _OneOf(frozenset(pattern[at])))
        at += 1
    return tokens


def _end_of_set(pattern: str, start: int) -> int:
    """Return the index of the bracket that closes a set, -1 if there is none; one right after the opening belongs to
    the set.
    """
    first = start + 2 if pattern[start + 1 : start + 2] == "!" else start + 1
    return pattern.find("]", first + 1)


def _set(text: str) -> _OneOf:
    is_negated = text.startswith("!")
    text = text[1:] if is_negated else text
    characters: set[str] = set()
    at = 0
    while at < len(text):
        if text[at + 1 : at + 2] == "-" and at + 2 < len(text):
            characters.update(map(chr, range(ord(text[at]), ord(text[at + 2]) + 1)))
            at += 3
        else:
            characters.add(text[at])
            at += 1
    return _OneOf(frozenset(characters), is_negated)
