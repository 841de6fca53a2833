"""Documents as YAML: what a reader gets back, and how the text looks."""

import yaml
from hypothesis import given
from hypothesis import strategies as st

from cli.plugin.reports.yaml_document import dump

_SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False)
    | st.text(st.characters(codec="utf-8"), max_size=20)
    | st.sampled_from(
        ["yes", "No", "on", "~", "null", "-", "0x1f", "1_000", "0000:01:00.2", "a: b", "# c", "é", "", "y"]
    )
    | st.from_regex(r"[A-Za-z0-9_/.:-]{1,12}", fullmatch=True)
)
_NAMES = st.text(st.characters(codec="utf-8"), max_size=6)
_VALUES = st.recursive(
    _SCALARS, lambda of: st.lists(of, max_size=3) | st.dictionaries(_NAMES, of, max_size=3), max_leaves=8
)


@given(st.dictionaries(_NAMES, _VALUES, max_size=4))
def test_a_document_is_read_back_as_it_was(document: dict[str, object]) -> None:
    """Readers of YAML 1.1 get the same values of the same types."""
    assert yaml.safe_load(dump(document)) == document


def test_the_text_looks_as_kubectls() -> None:
    """Block style, dashes below the name of the list, empty collections in one line, no text folded."""
    document = {
        "kind": "MooringPods",
        "items": [{"name": "a", "why": "x " * 60, "vfs": [{"vf": 0, "on": True}], "out": []}, 3, [1, []]],
        "notes": {},
    }
    assert dump(document).splitlines() == [
        "kind: MooringPods",
        "items:",
        "- name: a",
        f"  why: '{'x ' * 60}'",
        "  vfs:",
        "  - vf: 0",
        "    'on': true",
        "  out: []",
        "- 3",
        "- - 1",
        "  - []",
        "notes: {}",
    ]


def test_what_a_terminal_would_execute_is_escaped() -> None:
    """Any user can write annotations."""
    assert dump({"why": "\x1b[2J\x9b1m"}) == 'why: "\\e[2J\\x9B1m"\n'
