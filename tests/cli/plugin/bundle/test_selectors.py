"""Selectors of lists that are answered from a bundle."""

import pytest

from cli.plugin.bundle.layout import BundleError
from cli.plugin.bundle.selectors import field_selector, label_selector

POD = {"metadata": {"name": "a"}, "status": {"phase": "Running"}}


@pytest.mark.parametrize(
    ("selector", "selects"),
    [
        ("", True),
        ("metadata.name=a", True),
        ("metadata.name==b", False),
        ("status.phase!=Succeeded,status.phase!=Failed", True),
        ("status.phase!=Running", False),
        ("spec.nodeName=", True),
    ],
)
def test_fields_are_compared_and_an_absent_one_is_empty(selector: str, selects: bool) -> None:
    assert field_selector(selector)(POD) is selects


@pytest.mark.parametrize(
    ("selector", "selects"),
    [
        ("", True),
        ("app=x", True),
        ("app!=x", False),
        ("tier!=y", True),
        ("app in (x, y),tier notin (z)", True),
        ("app notin (x)", False),
        ("app", True),
        ("!app", False),
        ("!tier", True),
    ],
)
def test_labels_are_selected_by_equality_set_and_existence(selector: str, selects: bool) -> None:
    """As of `kubectl get -l`."""
    assert label_selector(selector)({"app": "x"}) is selects


def test_what_is_no_selector_is_named() -> None:
    with pytest.raises(BundleError, match="labelSelector: 'a=b=c' is not a selector such as 'key=value'"):
        label_selector("a=b=c")
