"""What the stand-in for systemd reads of a unit."""

from pathlib import Path

import pytest

from devcluster.systemd.units import Timer, Unit, in_order, parse, parse_timer, read_environment

_UNITS = Path(__file__).parents[3] / "cli/node/units"


def test_the_shims_unit_is_read_as_systemd_reads_it() -> None:
    """Readiness, restarts and folders; settings that confine it are ignored."""
    unit = parse("mooring-cri-shim.service", [(_UNITS / "mooring-cri-shim.service").read_text()])
    assert unit.command({}) == [
        "sh",
        "-c",
        'ulimit -n 65536 2>/dev/null || :\nexec "$@"',
        "sh",
        "/opt/mooring/bin/mooring-cri-shim",
    ]
    assert (unit.kind, unit.restarts, unit.restart_s, unit.stop_s) == ("notify", True, 0.1, 10.0)
    assert unit.folders == (("/run/mooring", 0o700), ("/var/lib/mooring", 0o700))
    assert unit.environment_files == ("-/etc/mooring/cri-shim.env",)
    assert unit.environment["PYTHONMALLOC"] == "malloc"


def test_a_drop_in_adds_and_takes_back() -> None:
    """A list grows by a drop-in's lines; an empty value empties it first."""
    said = "[Service]\nExecStart=old\nEnvironment=A=1\n"
    unit = parse(
        "a.service", [said, '[Service]\nExecStart=\nExecStart=new --flag\nEnvironment="B=2 3"\nLimitMEMLOCK=infinity\n']
    )
    assert unit.exec_start == "new --flag"
    assert unit.environment == {"A": "1", "B": "2 3"}
    assert unit.limits == {"-l": "unlimited"}


def test_variables_become_words_or_text() -> None:
    """$NAME is as many words as it holds, ${NAME} stays one; the line may be continued."""
    unit = parse("a.service", ["ExecStart=run $WORDS \\\n  --as=${WORDS} $NONE\n"])
    assert unit.command({"WORDS": "a b"}) == ["run", "a", "b", "--as=a b"]


def test_a_unit_without_a_command_is_refused() -> None:
    """A unit without a command has nothing to start."""
    with pytest.raises(ValueError, match=r"unit 'a\.service' has no ExecStart"):
        parse("a.service", ["[Unit]\nDescription=nothing\n"])


def test_an_environment_file_may_quote() -> None:
    """kubeadm quotes its flags in this way."""
    text = '# flags\nKUBELET_KUBEADM_ARGS="--a=1 --b"\nPLAIN=x y\n'
    assert read_environment(text) == {"KUBELET_KUBEADM_ARGS": "--a=1 --b", "PLAIN": "x y"}


def test_units_start_after_those_that_they_name() -> None:
    """After and Before decide, whatever the order of names; a circle is broken."""
    kubelet, shim = Unit("kubelet", "k"), Unit("shim", "s", after=("runtime",), before=("kubelet",))
    assert [unit.name for unit in in_order([kubelet, shim, Unit("runtime", "r")])] == ["runtime", "shim", "kubelet"]
    assert len(in_order([Unit("a", "a", after=("b",)), Unit("b", "b", after=("a",))])) == 2


def test_the_timer_of_the_nodes_check_is_read() -> None:
    """It names no service: it is that of its own name."""
    timer = parse_timer("mooring-node-check.timer", (_UNITS / "mooring-node-check.timer").read_text())
    assert timer == Timer("mooring-node-check.timer", "mooring-node-check.service", 30.0, 120.0)
