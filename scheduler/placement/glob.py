"""Patterns for names of PFs and models of GPUs, with the semantics of `fnmatch.fnmatchcase`."""

import re
from fnmatch import translate
from functools import lru_cache


@lru_cache(maxsize=256)
def glob(pattern: str) -> re.Pattern[str]:
    """Return a pattern as a regular expression: 0.3 ms for 64 characters. fnmatch would keep thousands of them."""
    return re.compile(translate(pattern))
