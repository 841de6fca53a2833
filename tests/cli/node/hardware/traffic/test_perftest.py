"""Pairs of pods that send to each other, with a stand-in for perftest."""

from functools import partial
from pathlib import Path

import pytest

from cli.node.hardware.commands import CommandError
from cli.node.hardware.plan.stream import stream_for
from cli.node.hardware.pods import Folders, Pod
from cli.node.hardware.traffic import endpoints, perftest
from cli.node.hardware.traffic.endpoints import Endpoint
from cli.node.hardware.traffic.perftest import LocalReceiver, Pair
from mooring.annotations.assignment import AssignedVf
from mooring.nic.settings import VfSettings

VF = AssignedVf("ib0", 2, "0000:3b:01.2", "infiniband", "default", VfSettings())
STREAM = stream_for(100_000, 1)


def pairs_of(ends: list[Endpoint]) -> list[Pair]:
    return [Pair(ends[at], LocalReceiver(ends[at + 1])) for at in (0, 2)]


@pytest.mark.root
def test_pairs_send_at_the_same_time_and_each_has_its_rate(ends: list[Endpoint], rate: Path) -> None:
    """The sides find each other though no pod reaches another one; both get the same sizes and times."""
    rate.with_name("rate.mlx5_2").write_text("3000")
    measured = perftest.measure(pairs_of(ends), STREAM)
    assert list(measured.mbps) == pytest.approx([97_000, 3_000], abs=1)
    assert measured.overlap > 0.9
    for number in (1, 3):
        options, heard = rate.with_name(f"rate.server-mlx5_{number}").read_text().splitlines()
        assert options == f"{' '.join(STREAM.options)} -d mlx5_{number} -x 3 -p 18515"
        assert heard == "5000"


@pytest.mark.root
def test_a_known_number_of_bytes_is_sent(ends: list[Endpoint], rate: Path) -> None:
    """Every queue pair sends so many messages."""
    assert perftest.send(pairs_of(ends)[0], STREAM, 100) == 100 * STREAM.qps * STREAM.message_bytes


@pytest.mark.root
def test_a_rate_that_changes_under_traffic_is_seen_by_second(ends: list[Endpoint], rate: Path) -> None:
    """The limit is changed while perftest runs on; its own clock is not used.

    The rates are far apart: on a busy machine a line may come several times later than it was written.
    """
    steps = [(partial(rate.write_text, "80000"), 3), (partial(rate.write_text, "2000"), 3)]
    before, after = perftest.observe(pairs_of(ends)[0], STREAM, steps)
    assert (len(before), len(after)) == (3, 3)
    assert min(before) > 2 * after[-1]


@pytest.mark.root
def test_a_perftest_that_fails_says_so_and_leaves_nothing_behind(ends: list[Endpoint], rate: Path) -> None:
    """Its last words are in the error; the port is free for the next run."""
    rate.write_text("broken")
    pair = pairs_of(ends)[0]
    with pytest.raises(CommandError, match=r"measured nothing: .*Failed to complete run_iter_bw"):
        perftest.measure([pair], STREAM)
    with pytest.raises(CommandError, match=r"stopped: .*Completion with error"):
        perftest.observe(pair, STREAM, [(lambda: None, 1)])
    rate.write_text("5000")
    assert list(perftest.measure([pair], STREAM).mbps) == pytest.approx([5_000], abs=1)


def command(path: Path, script: str) -> None:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def test_on_infiniband_a_pod_needs_no_address_and_an_active_port(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its GID table has no entry for RoCE v2: perftest gets the first one, which is made of the port's GUID."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    made = Pod("ib", VF, Folders())
    command(tmp_path / "ip", f'echo "$*" >>{tmp_path}/log; case "$*" in *ports/1/state) echo "4: ACTIVE";; esac')
    end = endpoints.endpoint(made, "10.250.0.1", "mlx5_7")
    assert end.device_options == ("-d", "mlx5_7", "-x", "0")
    assert "10.250.0.1" not in (tmp_path / "log").read_text()
    monkeypatch.setattr(endpoints, "_READY_S", 0.0)
    command(tmp_path / "ip", 'case "$*" in *ports/1/state) echo "2: INIT";; esac')
    with pytest.raises(CommandError, match=r"port 1 of mlx5_7 in ib is '2: INIT', not ACTIVE: is there a subnet man"):
        endpoints.endpoint(made, "10.250.0.1", "mlx5_7")
    with pytest.raises(CommandError, match="the VF in ib has no RDMA device"):
        endpoints.endpoint(made, "10.250.0.1", None)
