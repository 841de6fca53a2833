"""Remove excessive nesting from JSON: decoders reject it, and one such object must not hide the others.

In fields that can contain any JSON (`fieldsV1` of managed fields), an API server accepts 10,000 levels.
"""

import re

# Twice the depth of any field of Kubernetes' own objects.
_DEEPEST = 100
_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[][{}]', re.DOTALL)


def cut_deep_nesting(text: bytes) -> bytes:
    """Replace each value that is more than 100 levels deep by null."""
    parts: list[bytes] = []
    depth = part_start = 0
    for token in _TOKEN.finditer(text):
        if token[0] in (b"{", b"["):
            depth += 1
            if depth == _DEEPEST + 1:
                parts += text[part_start : token.start()], b"null"
        elif token[0] in (b"}", b"]"):
            if depth == _DEEPEST + 1:
                part_start = token.end()
            depth -= 1
    # Unterminated JSON is invalid anyway.
    return b"".join([*parts, text[part_start:]] if depth <= _DEEPEST else parts)
