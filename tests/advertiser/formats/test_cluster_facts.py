"""What the cluster says of the node: what is drained."""

import pytest

from advertiser.formats.cluster_facts import read_drain
from mooring import names
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
