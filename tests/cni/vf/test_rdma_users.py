"""Whose use of a VF's RDMA device keeps it from the next pod."""

from dataclasses import replace
from pathlib import Path

import pytest

from cni.kernel import rdma
from cni.kernel.sysfs import Sysfs
from cni.vf import rdma_users
from mooring.records.ledger import Original
from tests.cni.vf.detach.test_detach import ENTRY


@pytest.mark.parametrize(
    ("before", "now", "left"),
    [
        ((), (), ()),
        ((7,), (7,), ()),
        ((7,), (7, 8), (8,)),
        # task_pid_vnr of nldev.c's fill_res_name_pid is 0 for a task that is dead: whose it was is not known.
        ((7, rdma.NAMELESS), (7, rdma.NAMELESS), (rdma.NAMELESS,)),
        ((rdma.NAMELESS,), (), ()),
    ],
)
def test_an_unnamed_process_is_never_taken_for_an_earlier_one(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    before: tuple[int, ...],
    now: tuple[int, ...],
    left: tuple[int, ...],
) -> None:
    """Those of the host that had the device before the pod are left alone, by their ids."""
    monkeypatch.setattr(rdma, "device_of", lambda *_: rdma.Device("mlx5_2", 5))
    monkeypatch.setattr(rdma, "users", lambda _: frozenset(now))
    entry = replace(ENTRY, original=Original("eth2", users=before))
    assert rdma_users.pod_users(Sysfs(tmp_path), entry) == frozenset(left)
