"""The order of a group's members: that of their ranks, whichever controller has made them."""

from random import Random
from typing import Any

import pytest

from scheduler.kube.member_order import by_index
from tests.scheduler.conftest import MakePod

_JOBSET, _LWS = "jobset.sigs.k8s.io", "leaderworkerset.sigs.k8s.io"


def _job_set(job: int, index: int) -> tuple[str, dict[str, str]]:
    labels = {f"{_JOBSET}/job-global-index": f"{job}", "batch.kubernetes.io/job-completion-index": f"{index}"}
    return f"train-ranks-{job}-{index}-x{9 - job}{9 - index}", labels


def _worker(group: int, index: int) -> tuple[str, dict[str, str]]:
    """A leader's pod-index is that of its replica; its workers are of a StatefulSet of their own, which begins at 1."""
    name = f"vllm-{group}-{index}" if index else f"vllm-{group}"
    own = {f"{_LWS}/group-index": f"{group}", f"{_LWS}/worker-index": f"{index}"}
    return name, {**own, "apps.kubernetes.io/pod-index": f"{index or group}"}


@pytest.mark.parametrize(
    "ranks",
    [
        pytest.param([_job_set(job, index) for job in range(3) for index in range(12)], id="JobSet"),
        pytest.param([_worker(group, index) for group in range(3) for index in range(3)], id="LeaderWorkerSet"),
        pytest.param([_worker(7, index) for index in range(4)], id="one replica"),
        pytest.param([(f"job-{role}-{n}", {}) for role in ("master", "worker") for n in range(11)], id="PyTorchJob"),
    ],
)
def test_members_are_in_the_order_of_their_ranks(ranks: list[tuple[str, dict[str, str]]], make_pod: MakePod) -> None:
    pods: list[Any] = [make_pod(name, metadata={"labels": labels}) for name, labels in ranks]
    shuffled = Random(1).sample(pods, len(pods))
    assert [pod.metadata.name for pod in sorted(shuffled, key=by_index)] == [name for name, _ in ranks]
