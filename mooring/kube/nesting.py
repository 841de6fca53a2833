"""Remove excessive nesting from JSON: no decoder accepts it, and one such object must not hide the others.

Where an object may hold any JSON (`fieldsV1` of its managed fields), an API server accepts 10,000 levels.
"""

import re

# No field of Kubernetes' own objects is half as deep.
_DEEPEST = 100
_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[][{}]', re.DOTALL)


def without_deep_nesting(text: bytes) -> bytes:
    """Return JSON text with null in place of each value that is more than 100 levels deep."""
    kept: list[bytes] = []
    depth = begun = 0
    for token in _TOKEN.finditer(text):
        if token[0] in (b"{", b"["):
            depth += 1
            if depth == _DEEPEST + 1:
                kept += text[begun : token.start()], b"null"
        elif token[0] in (b"}", b"]"):
            if depth == _DEEPEST + 1:
                begun = token.end()
            depth -= 1
    # JSON that never ends is invalid anyway.
    return b"".join([*kept, text[begun:]] if depth <= _DEEPEST else kept)
