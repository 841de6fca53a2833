"""A run of `init`: what it takes, how often it tries, and what it reports."""

import errno
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from advertiser.host.offer_file import parse_offer
from advertiser.init import offer_sources
from advertiser.init.bind_requests import BindRequests
from advertiser.init.hand_over import NO_OFFER, NotPreparedError, await_init, hand_over
from advertiser.init.init_run import PAUSES_S, InitRun
from advertiser.init.offer_sources import HandedOffer, OperatorsOffer
from advertiser.inventory.offer import EVERYTHING, Offer, OfferError
from mooring.records.handed_offer import (
    CURRENT,
    LOCK,
    NEXT,
    RESULT,
    InitResult,
    digest,
    dump_init_result,
    read_init_result,
)
from mooring.records.run_folder import BOUND_PFS

OFFER, OTHER = "v: 1\npfs: []\n", "v: 1\npfs: []\nrdma_netns: shared\n"
PF = "0000:04:00.0"


@dataclass
class Node:
    """A node's folders, and what `init` does on it: ``failing`` are the failures of the next tries, then none."""

    folder: Path
    failing: list[list[str]] = field(default_factory=list)
    prepared: list[Offer] = field(default_factory=list)
    waited_s: float = 0.0
    meanwhile: Callable[[], object] = lambda: None

    @property
    def state(self) -> Path:
        return self.folder / "state"

    @property
    def run(self) -> Path:
        return self.folder / "run"

    def prepare(self, offer: Offer) -> Sequence[object]:
        self.prepared.append(offer)
        now, self.meanwhile = self.meanwhile, lambda: None
        now()
        return self.failing.pop(0) if self.failing else ()

    def pause(self, seconds: float) -> None:
        self.waited_s += seconds

    def init(self) -> bool:
        return InitRun(HandedOffer(self.state), BindRequests(self.run), self.prepare, self.pause).run()

    def bind(self, pci: str = PF) -> None:
        """Do as 79-mooring-init.rules does."""
        (self.run / BOUND_PFS / pci).mkdir(parents=True, exist_ok=True)

    def hand(self, text: str | None) -> str:
        source = self.folder / "configmap/offer.yaml"
        source.parent.mkdir(exist_ok=True)
        source.unlink(missing_ok=True)
        if text is not None:
            source.write_text(text)
        return hand_over(self.state, source, required=False)

    def await_init(self, text: str) -> None:
        await_init(self.state, self.run, text, self.pause)

    @property
    def result(self) -> InitResult:
        return read_init_result((self.run / RESULT).read_text())


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_nothing_is_prepared_before_an_offer_was_handed_over(node: Node) -> None:
    """A first boot, or an upgrade of the node before its DaemonSet: what was prepared otherwise stays as it is."""
    assert node.init()
    assert (node.prepared, node.result) == ([], InitResult("done"))


def test_the_offer_that_was_handed_over_last_is_used_at_each_boot(node: Node) -> None:
    """It is taken once; one that was handed over when the power went is taken at the boot."""
    text = node.hand(OFFER)
    assert node.init()
    assert not (node.state / NEXT).exists()
    assert (node.state / CURRENT).read_text() == OFFER
    assert node.result == InitResult("done", digest(text))
    assert node.init()
    assert len(node.prepared) == 2
    node.hand(OTHER)
    assert node.init()
    assert (node.state / CURRENT).read_text() == OTHER


def test_a_cluster_without_an_offer_offers_every_pf(node: Node) -> None:
    """That is handed over as well: it is not the same as an offer that has not come yet."""
    node.hand(OFFER)
    assert node.hand(None) == NO_OFFER
    assert node.init()
    assert node.prepared == [EVERYTHING]


def test_an_offer_that_cannot_be_read_is_not_handed_over(node: Node) -> None:
    """The last one stays."""
    node.hand(OFFER)
    for wrong in ("v: 1\npfs: {}\n", "v: [", "", "v: 2\npfs: []\n"):
        with pytest.raises(OfferError):
            node.hand(wrong)
    assert (node.state / NEXT).read_text() == OFFER


def test_an_offer_that_this_release_cannot_read_does_not_replace_the_last_one(node: Node) -> None:
    """The DaemonSet may be of a later release: it is told, and the unit is not started for it again and again."""
    node.hand(OFFER)
    node.init()
    later = "v: 1\npfs: []\nlater: 1\n"
    (node.state / NEXT).write_text(later)
    assert not node.init()
    assert (node.result.offer, node.result.failures[0].startswith("offer 'offer/next.yaml'.later: ")) == (
        digest(later),
        True,
    )
    assert ((node.state / NEXT).exists(), (node.state / CURRENT).read_text()) == (False, OFFER)


def test_an_offer_that_others_can_write_is_not_believed(node: Node) -> None:
    """Nor is the unit started for it again and again."""
    node.hand(OFFER)
    (node.state / NEXT).chmod(0o666)
    assert not node.init()
    assert (node.prepared, (node.state / NEXT).exists()) == ([], False)
    assert "users other than root" in node.result.failures[0]


def test_a_reload_has_three_tries(node: Node) -> None:
    """The first and second fail: the PF's netdev was not there yet, for instance."""
    node.hand(OFFER)
    node.bind()
    node.failing = [["eth0: no"], ["eth0: no"]]
    assert node.init()
    assert (len(node.prepared), node.result.failures) == (3, ())
    assert node.waited_s >= sum(PAUSES_S)


def test_a_reload_that_fails_three_times_is_given_up_and_the_next_one_has_three_again(node: Node) -> None:
    """Its failures are reported."""
    node.hand(OFFER)
    for _ in range(2):
        node.bind()
        node.prepared.clear()
        node.failing = [["eth0: no"]] * 3
        assert not node.init()
        assert (len(node.prepared), node.result.failures) == (3, ("eth0: no",))


def test_an_offer_has_one_try(node: Node) -> None:
    """The init container comes again by itself."""
    node.hand(OFFER)
    node.failing = [["eth0: no"]] * 3
    assert not node.init()
    assert (len(node.prepared), node.waited_s) == (1, 0.0)


def test_pfs_that_are_bound_within_a_second_share_a_run(node: Node) -> None:
    """A NIC's ports, and the netdevs that udev renames then."""
    node.hand(OFFER)
    node.bind()
    node.bind("0000:04:00.1")
    assert node.init()
    assert (len(node.prepared), list((node.run / BOUND_PFS).iterdir())) == (1, [])


@pytest.mark.parametrize("failing", [[], [["eth0: no"]]])
def test_a_pf_that_is_bound_while_a_run_looks_at_the_host_is_not_missed(node: Node, failing: list[list[str]]) -> None:
    """Also where the run fails that it came into: three tries from then on."""
    node.hand(OFFER)
    node.failing = failing
    node.meanwhile = node.bind
    assert node.init()
    assert len(node.prepared) == 2
    assert not BindRequests(node.run).pending()


def test_whatever_lies_among_the_requests_is_taken(node: Node) -> None:
    """systemd starts the unit again as long as the folder is not empty."""
    node.bind()
    folder = node.run / BOUND_PFS
    (folder / "file").write_text("")
    (folder / "link").symlink_to("/nowhere")
    (folder / PF / "inner").mkdir()
    assert node.init()
    assert list(folder.iterdir()) == []


def test_an_offer_that_comes_during_a_run_is_used_by_it(node: Node) -> None:
    """The one who handed it over has an answer about that one."""
    node.hand(OFFER)
    node.meanwhile = lambda: node.hand(OTHER)
    assert node.init()
    assert (len(node.prepared), node.result.offer) == (2, digest(OTHER))


def test_the_operators_own_file_is_read_again_at_the_end(tmp_path: Path) -> None:
    """mooring-init.path does not start the unit for a change while it runs."""
    node, file = Node(tmp_path), tmp_path / "offer.yaml"
    run = InitRun(OperatorsOffer(file), BindRequests(node.run), node.prepare, node.pause)
    node.meanwhile = lambda: file.write_text(OFFER)
    assert run.run()
    assert (node.prepared[0], len(node.prepared), node.result.offer) == (EVERYTHING, 2, digest(OFFER))


def test_the_container_waits_until_init_is_done_with_its_offer(node: Node) -> None:
    """Not with an earlier one, and not by an answer of before."""
    node.hand(OFFER)
    node.init()
    text = node.hand(OFFER)
    polls = 0

    def pause(_: float) -> None:
        nonlocal polls
        polls += 1
        if polls == 3:
            node.init()

    await_init(node.state, node.run, text, pause)
    assert polls == 3


def test_the_container_fails_with_what_init_could_not_prepare(node: Node) -> None:
    """Its log has the reason, so that nobody has to log in to the node."""
    node.init()
    text = node.hand(OFFER)
    node.failing = [["eth0: SR-IOV is off"]]
    node.init()
    with pytest.raises(NotPreparedError, match=r"mooring-init\.service: eth0: SR-IOV is off"):
        node.await_init(text)


def test_the_container_does_not_wait_where_no_unit_is_installed(node: Node) -> None:
    """The DaemonSet may come before `mooring-node install`: its advertiser says what the node has."""
    node.await_init(node.hand(OFFER))
    assert (node.state / NEXT).exists()


def test_the_container_does_not_wait_for_ever(node: Node) -> None:
    """A run that was killed leaves no answer."""
    node.init()
    text = node.hand(OFFER)
    with pytest.raises(NotPreparedError, match="not finished with the offer after 900 s"):
        node.await_init(text)


def test_a_run_that_ends_unexpectedly_says_so(node: Node) -> None:
    """Nobody waits for an answer that does not come."""
    node.hand(OFFER)

    def broken() -> None:
        raise RuntimeError("broken")

    node.meanwhile = broken
    with pytest.raises(RuntimeError):
        node.init()
    assert node.result == InitResult("done", None, ("init ended unexpectedly: see its log",))


def test_an_offer_that_cannot_be_taken_is_tried_three_times_and_no_more(node: Node, monkeypatch: Any) -> None:
    """Without a pause between, the unit would run without end: what starts it is still there."""
    node.hand(OFFER)
    node.init()
    node.prepared.clear()

    def refused(_: Path) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(offer_sources, "remove_file", refused)
    (node.state / NEXT).write_text("v: [")
    assert not node.init()
    assert (len(node.prepared), node.result.state) == (3, "done")
    assert node.waited_s == pytest.approx(sum(PAUSES_S))


def test_a_folder_in_place_of_the_offer_to_come_is_refused_once(node: Node) -> None:
    """systemd starts the unit again as long as anything is there."""
    node.hand(OFFER)
    node.init()
    (node.state / NEXT / "inner").mkdir(parents=True)
    assert not node.init()
    assert (len(node.prepared), (node.state / NEXT).exists()) == (2, False)
    assert "a folder, not a regular file" in node.result.failures[0]


def test_a_folder_in_place_of_the_offer_that_was_taken_ends_no_run(node: Node) -> None:
    """Nothing can be prepared by an offer that is not there at the next boot."""
    (node.state / CURRENT).mkdir(parents=True)
    node.hand(OFFER)
    assert not node.init()
    assert (node.prepared, node.waited_s, node.result.state) == ([], 0.0, "done")
    assert (node.state / NEXT).exists() is False


@pytest.mark.parametrize("wrong", ["v: 1\npfs: []\nlater: 1\n", "v: ["])
def test_a_refused_offer_leaves_the_last_one_in_force(node: Node, wrong: str) -> None:
    """A boot makes the node's VFs by it; the answer is about the refused one, also after a try for a driver."""
    node.hand(OFFER)
    node.init()
    (node.state / NEXT).write_text(wrong)
    node.bind()
    node.failing = [["eth0: no"]]
    assert not node.init()
    assert node.prepared == [parse_offer(OFFER, "offer")] * 3
    assert (node.result.offer, len(node.result.failures)) == (digest(wrong), 1)
    assert "'offer/next.yaml'" in node.result.failures[0]
    node.hand(OTHER)
    assert node.init()
    assert node.result == InitResult("done", digest(OTHER))


@pytest.mark.parametrize("name", [RESULT, LOCK])
def test_a_folder_in_place_of_what_a_run_writes_keeps_no_vf_from_being_made(node: Node, name: str) -> None:
    """Nobody needs either file for the VFs."""
    (node.run / name).mkdir(parents=True)
    node.hand(OFFER)
    assert node.init()
    assert len(node.prepared) == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_the_container_does_not_wait_for_a_run_that_was_killed(node: Node, number: signal.Signals) -> None:
    """It fails, and the kubelet starts it again, and with it the unit. While a run works it is waited for."""
    text = node.hand(OFFER)
    waited: list[float] = []
    with _stopped_run(node) as run:

        def pause(seconds: float) -> None:
            waited.append(seconds)
            if len(waited) == 3:
                run.send_signal(number)
                run.wait()

        with pytest.raises(NotPreparedError, match=r"mooring-init\.service was stopped or killed"):
            await_init(node.state, node.run, text, pause)
    assert len(waited) == 3


@pytest.mark.parametrize("failures", [(), ("init ended unexpectedly: see its log",)])
def test_the_container_does_not_wait_for_an_answer_about_its_offer_that_cannot_come(
    node: Node, failures: tuple[str, ...]
) -> None:
    """Its offer is gone, and the last run is done with another one or with none."""
    text = node.hand(OFFER)
    (node.state / NEXT).unlink()
    (node.run / RESULT).parent.mkdir(parents=True)
    (node.run / RESULT).write_text(dump_init_result(InitResult("done", digest(OTHER), failures)))
    with pytest.raises(NotPreparedError, match="; ".join(failures) or "has received another offer"):
        await_init(node.state, node.run, text, node.pause)
    assert node.waited_s == 0.0


@contextmanager
def _stopped_run(node: Node) -> Iterator["subprocess.Popen[bytes]"]:
    """Run `init` in a process of its own, which prepares for ever."""
    script = (
        "import sys, threading; from pathlib import Path\n"
        "from advertiser.init.bind_requests import BindRequests\n"
        "from advertiser.init.init_run import InitRun\n"
        "from advertiser.init.offer_sources import HandedOffer\n"
        "def prepare(_):\n"
        "    print(flush=True)\n"
        "    threading.Event().wait()\n"
        "state, run = map(Path, sys.argv[1:])\n"
        "InitRun(HandedOffer(state), BindRequests(run), prepare, print).run()\n"
    )
    arguments = [sys.executable, "-c", script, str(node.state), str(node.run)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE) as run:
        try:
            assert run.stdout is not None
            while run.stdout.readline() != b"\n":
                assert run.poll() is None
            yield run
        finally:
            run.kill()
