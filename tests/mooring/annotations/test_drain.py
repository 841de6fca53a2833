"""The PFs and VFs that a node's annotations take out of scheduling."""

import pytest

from mooring import names
from mooring.annotations.drain import dump_drain, read_drain, read_drain_with_reasons
from mooring.errors import AnnotationError


def test_the_drain_annotation_names_pfs_and_vfs() -> None:
    """A node without the annotation drains nothing."""
    assert read_drain('["enp4s0f0","enp4s0f1/7"]') == {"enp4s0f0", "enp4s0f1/7"}
    assert read_drain(None) == frozenset()


@pytest.mark.parametrize("text", ["enp4s0f0", '{"enp4s0f0":true}', "[7]", ""])
def test_a_drain_annotation_that_is_not_a_list_of_names_is_refused(text: str) -> None:
    """The error names the key and the place."""
    with pytest.raises(AnnotationError, match=names.DRAIN):
        read_drain(text)


def test_reasons_are_written_beside_the_entries_and_read_back() -> None:
    """An operator who types the first annotation by hand gives no reason."""
    drain = {"enp4s0f0": "new firmware", "enp4s0f1/7": ""}
    written = {key: text for key, text in dump_drain(drain).items() if text is not None}
    assert written[names.DRAIN] == '["enp4s0f0","enp4s0f1/7"]'
    assert read_drain_with_reasons(written) == drain
    assert read_drain_with_reasons({names.DRAIN: '["pf0"]', names.DRAIN_REASONS: '{"pf1":"gone"}'}) == {"pf0": ""}
    assert dump_drain({}) == {names.DRAIN: None, names.DRAIN_REASONS: None}


@pytest.mark.parametrize("text", ["[]", '{"pf0":7}', f'{{"pf0":"{"x" * 257}"}}'])
def test_reasons_that_are_no_texts_are_refused(text: str) -> None:
    with pytest.raises(AnnotationError, match=names.DRAIN_REASONS):
        read_drain_with_reasons({names.DRAIN: '["pf0"]', names.DRAIN_REASONS: text})
