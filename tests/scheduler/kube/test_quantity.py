"""Kubernetes quantities become integers as apimachinery has them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.kube.resources import MAX_AMOUNT, parse_quantity, parse_resources


@pytest.mark.parametrize(
    ("text", "parts", "expected"),
    [
        ("1", 1000, 1000),
        ("100m", 1000, 100),
        ("0.1", 1000, 100),
        (".5", 1000, 500),
        ("1.0001", 1000, 1001),
        ("100u", 1000, 1),
        ("2Gi", 1, 2 << 30),
        ("1k", 1, 1000),
        ("1e3", 1, 1000),
        ("1E3", 1, 1000),
        ("1E", 1, 10**18),
        ("1500m", 1, 2),
        ("9e99", 1, 2**63 - 1),
        ("-1", 1, -1),
        (4, 1, 4),
        (0.5, 1000, 500),
    ],
)
def test_quantities_are_rounded_up_to_whole_units(text: str | float, parts: int, expected: int) -> None:
    """A part of a unit counts as one, and nothing exceeds 64 bits."""
    assert parse_quantity(text, parts) == expected


@pytest.mark.parametrize("text", ["", "m", "1 Gi", "1GiB", "0x10", "1e999", "NaN", "1,5", "\u0661"])
def test_an_invalid_quantity_is_refused_with_its_resource(text: str) -> None:
    """The error names the resource and the value."""
    with pytest.raises(ValueError, match=r"resource 'cpu': .* is not a quantity"):
        parse_resources({"cpu": text})


def test_an_amount_of_a_resource_is_not_below_0_nor_beyond_all_nodes() -> None:
    """So the amounts of all pods of a node add up, and no pod gives a node what it does not have."""
    assert parse_resources({"memory": "9Ei"}) == {"memory": MAX_AMOUNT}
    with pytest.raises(ValueError, match="resource 'cpu': '-1' is below 0"):
        parse_resources({"cpu": "-1"})


@given(st.text())
def test_any_text_is_a_quantity_or_a_value_error(text: str) -> None:
    """Nothing else comes out, whatever goes in."""
    try:
        amount = parse_quantity(text)
    except ValueError:
        return
    assert abs(amount) < 2**63
