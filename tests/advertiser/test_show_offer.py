"""`mooring-advertiser show --offer FILE`: which PFs each entry of the offer matches on this host."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from advertiser.__main__ import main

Tree = Mapping[str, Any]
Show = Callable[..., int]
# The layout's PFs.
FIRST, SECOND = "ens1f0np0", "ens1f1np1"


@pytest.fixture
def show(named_layout: Callable[[str], Tree], tree: Callable[[Tree], Path], tmp_path: Path) -> Show:
    """Run the command on a host with two PFs, with this text as the offer; return the exit status."""
    sysfs = tree(named_layout("connectx6dx-inbox-ethernet"))
    folders = ("--state", str(tmp_path / "state"), "--run", str(tmp_path / "run"))

    def run(offer: str, *more: str) -> int:
        (tmp_path / "offer.yaml").write_text(f"v: 1\npfs: {offer}\n")
        file = ("--offer", str(tmp_path / "offer.yaml"))
        return main(["show", "--sysfs", str(sysfs), "--node-name", "n1", *folders, *file, *more])

    return run


def test_each_entry_is_printed_with_the_pfs_that_it_decides_about(
    show: Show, capsys: pytest.CaptureFixture[str]
) -> None:
    """An entry for other nodes is no matter of this one."""
    assert (
        show(f"[{{match: {{name: {FIRST}}}}}, {{match: {{vendor: 0x15B3}}}}, {{match: {{node: other, name: x}}}}]") == 0
    )
    lines = capsys.readouterr().out.splitlines()
    assert f"pfs[0] of the offer: {FIRST}" in lines
    assert f"pfs[1] of the offer: {SECOND}; an earlier entry decides about {FIRST}" in lines
    assert not [line for line in lines if line.startswith("pfs[2]")]


def test_an_entry_that_matches_no_pf_is_an_error(show: Show, capsys: pytest.CaptureFixture[str]) -> None:
    """With the nearest PF; one that takes PFs off the offer may find none."""
    assert show("[{match: {name: ens1f0}}, {match: {name: enp5s0}, offer: false}, {}]") == 1
    lines = capsys.readouterr().out.splitlines()
    (fault,) = [line for line in lines if line.startswith("pfs[0]")]
    assert fault.startswith(f"pfs[0] of the offer: it matches no PF of this node (nearest is {FIRST} at ")
    assert "pfs[1] of the offer: no PF of this node" in lines


def test_json_has_the_entries(show: Show, capsys: pytest.CaptureFixture[str]) -> None:
    """By their places in the file."""
    assert show(f"[{{match: {{name: {FIRST}}}}}]", "--output", "json") == 0
    assert json.loads(capsys.readouterr().out)["entries"] == [{"entry": 0, "pfs": [FIRST], "why": ""}]


def test_a_vlan_that_other_namespaces_can_have_is_a_warning(show: Show, capsys: pytest.CaptureFixture[str]) -> None:
    """VLANs may repeat on separate switches, so it is no error, in the table and in JSON."""
    offer = f"[{{match: {{name: {FIRST}}}, network: s, vlan: 100, namespaces: [a]}}, {{network: open, vlan: 100}}]"
    assert show(offer) == 0
    text = "network 's' is for namespaces a, but pods of other namespaces can have vlan 100 on network 'open'"
    (line,) = [line for line in capsys.readouterr().out.splitlines() if text in line]
    assert line.startswith("warning: ")
    assert show(offer, "--output", "json") == 0
    (warning,) = json.loads(capsys.readouterr().out)["offer_warnings"]
    assert warning.startswith(text)
