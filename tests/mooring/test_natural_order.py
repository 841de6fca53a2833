"""Names with numbers sort as people count, whatever the numbers' lengths."""

import itertools

from mooring.natural_order import natural


def test_numbers_within_names_sort_by_their_values() -> None:
    """rail2 is before rail10, and a number is before a word in its place."""
    assert sorted(["rail10", "rail2", "rail1-b", "rail1-a", "10", "rail"], key=natural) == [
        "10",
        "rail",
        "rail1-a",
        "rail1-b",
        "rail2",
        "rail10",
    ]


def test_names_whose_numbers_are_equal_have_an_order_too() -> None:
    """They come from sets, which have another order in each process."""
    names = ["rail01", "rail1", "rail001", "rail1-a", "rail01-a", "rail"]
    orders = {tuple(sorted(order, key=natural)) for order in itertools.permutations(names)}
    assert orders == {("rail", "rail001", "rail01", "rail1", "rail01-a", "rail1-a")}


def test_a_number_of_many_digits_sorts_as_text() -> None:
    """Reading a number takes time by its digits, and names are chosen by others."""
    assert sorted(["a" + "9" * 19, "a" + "1" * 20, "a5"], key=natural) == ["a5", "a" + "1" * 20, "a" + "9" * 19]
