"""The records of changed rates: how long they stay, after a boot too, and who may read the states."""

import itertools
from collections.abc import Callable

import pytest

from mooring.locks import hold
from mooring.records import extract
from mooring.records.rates_exchange import (
    HANDED_OVER,
    RATES_LIST,
    STATES,
    RatesState,
)
from tests.cni.server.rates.pod import NEW, Pod, pci


@pytest.mark.parametrize("order", [*itertools.permutations(range(3))], ids=str)
def test_the_record_goes_once_nothing_of_the_pod_is_left(pod: Pod, order: tuple[int, ...]) -> None:
    """Not before the pod is gone from the API server, its record and its VFs: until then an ADD may need it."""
    pod.hand_over(*NEW)
    pod.say_listed()
    server = pod.server()
    server.look(0)
    record = pod.root / "state/rates/u1.json"
    steps: list[Callable[[], None]] = [
        (pod.root / "state/pods/u1.json").unlink,
        (pod.root / "run" / HANDED_OVER / "u1.json").unlink,
        pod.release,
    ]
    for second, number in enumerate(order):
        assert record.exists()
        steps[number]()
        server.look(20 * (second + 1))
    assert (record.exists(), pod.state()) == (False, None)


def test_after_a_boot_the_record_stays_until_the_advertiser_has_listed_the_pods(pod: Pod) -> None:
    """The kubelet makes no sandbox for a while, and the shim forgets the pod; but its next ADD needs the record."""
    pod.hand_over(*NEW)
    pod.say_listed()
    pod.server().look(0)
    (pod.root / "state/pods/u1.json").unlink()
    pod.release()
    given, listed = pod.root / "run" / HANDED_OVER / "u1.json", pod.root / "run" / RATES_LIST
    text = given.read_text()
    given.unlink()
    listed.unlink()
    server = pod.server()
    for second in (20, 40, 86_400):
        server.look(second)
    record = pod.root / "state/rates/u1.json"
    assert record.exists()
    pod.leave(text)
    pod.say_listed()
    server.look(86_420)
    assert record.exists()
    given.unlink()
    server.look(86_440)
    assert not record.exists()


def test_after_a_boot_states_are_shown_once_all_are_known(pod: Pod) -> None:
    """An advertiser that saw none of them would take back what it has published: the scheduler counts with it."""
    pod.hand_over(*NEW)
    pod.server().look(0)
    for path in (pod.root / "run" / STATES / "u1.json", pod.root / "run" / HANDED_OVER / "u1.json"):
        path.unlink()
    (pod.root / "run" / STATES).rmdir()
    server = pod.server()
    with hold(pod.root / "run", pci(0), limit_s=0):
        server.look(0)
        assert not (pod.root / "run" / STATES).exists()
    server.look(1)
    assert pod.state() == RatesState("ns/p", 1, in_force=True)
    again = pod.server()
    with hold(pod.root / "run", pci(0), limit_s=0):
        again.look(0)
        assert pod.state() == RatesState("ns/p", 1, in_force=True)
    again.look(1)
    assert pod.value("rates_changes_total") == 2


def test_the_advertisers_group_reads_the_states_and_nobody_else(pod: Pod) -> None:
    """As it reads the extracts: by the folder's group, which its files get."""
    pod.hand_over(*NEW)
    pod.server().look(0)
    folder = pod.root / "run" / STATES
    extracts = pod.root / "run" / extract.VFS
    states = [(path.stat().st_mode, path.stat().st_gid) for path in (folder, folder / "u1.json")]
    assert states == [(path.stat().st_mode, path.stat().st_gid) for path in (extracts, extracts / f"{pci(0)}.json")]
