"""`mooring.annotations.rates_signature`: what is signed for rates is signed for nothing else."""

import pytest

from mooring import names
from mooring.annotations.assignment_signature import AssignmentSignature, dump_signature
from mooring.annotations.assignment_signature import signed_bytes as signed_for_an_assignment
from mooring.annotations.rates_signature import read_signature, signed_bytes
from mooring.errors import AnnotationError


def test_a_signature_of_rates_is_none_of_an_assignment() -> None:
    """By a prefix of its own, over the annotation's exact bytes."""
    assert signed_bytes(b"{}") == b"mooring.dev/rates-signature v1\0{}"
    assert signed_bytes(b"{}") != signed_for_an_assignment(b"{}")


def test_it_is_written_as_an_assignments_is() -> None:
    """And what cannot be read is named by its own key."""
    signature = AssignmentSignature("0123456789abcdef", bytes(range(64)))
    assert read_signature(dump_signature(signature)) == signature
    for text in ("{}", "x" * 257):
        with pytest.raises(AnnotationError) as raised:
            read_signature(text)
        assert raised.value.key == names.RATES_SIGNATURE
