"""Marks of calls that the CRI shim forwards: whose a mark is, when it counts, and which shim's promise holds."""

import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mooring.errors import RecordError
from mooring.files import write_file
from mooring.records.sandbox_marks import FOLDER, are_needed, claim, is_marked, mark_call, promise_marks

_MARKS = 3000
UID = "8c2f0001-0000-4000-8000-000000000001"


def marks(run: Path) -> list[str]:
    return sorted(path.name for path in (run / FOLDER).iterdir() if not path.name.startswith("."))


def test_a_call_has_a_mark_while_it_lasts(tmp_path: Path) -> None:
    """Named by the pod and a random number; nothing of it is left."""
    with mark_call(tmp_path, UID), mark_call(tmp_path, UID):
        first, second = marks(tmp_path)
        assert first.startswith(f"{UID}.")
        assert first != second
    assert list((tmp_path / FOLDER).iterdir()) == []


def test_a_shim_that_starts_meanwhile_hinders_no_mark(tmp_path: Path) -> None:
    """It looks at marks that are not locked yet, and removes them: one that takes over starts while the other works."""
    over = threading.Event()

    def start_again_and_again() -> None:
        while not over.is_set():
            promise_marks(tmp_path / "state", tmp_path, "1")

    with ThreadPoolExecutor(1) as pool:
        starting = pool.submit(start_again_and_again)
        try:
            for _ in range(_MARKS):
                with mark_call(tmp_path, UID):
                    assert is_marked(tmp_path, UID)
        finally:
            over.set()
        starting.result()
    assert not is_marked(tmp_path, UID)


def test_a_failed_call_leaves_no_mark(tmp_path: Path) -> None:
    """Whatever ends the block."""
    with pytest.raises(KeyboardInterrupt), mark_call(tmp_path, UID):
        raise KeyboardInterrupt
    assert marks(tmp_path) == []


def test_the_first_add_claims_the_mark_and_others_of_its_sandbox_agree(tmp_path: Path) -> None:
    """Multus makes an ADD for each network of a sandbox; another sandbox of the pod gets none."""
    with mark_call(tmp_path, UID):
        assert claim(tmp_path, UID, "box1") == "granted"
        assert [claim(tmp_path, UID, container) for container in ("box1", "box2", "box1")] == [
            "granted",
            "taken",
            "granted",
        ]
        assert [(tmp_path / FOLDER / name).read_text() for name in marks(tmp_path)] == ["box1"]
    assert claim(tmp_path, UID, "box1") == "none"


def test_a_pods_mark_is_not_another_pods(tmp_path: Path) -> None:
    """Nor that of a pod whose uid begins with the same letters."""
    with mark_call(tmp_path, UID):
        assert claim(tmp_path, UID[:-1], "box1") == "none"
        assert claim(tmp_path, "other", "box1") == "none"


def test_two_calls_of_one_pod_have_a_sandbox_each(tmp_path: Path) -> None:
    """The kubelet asks again while the runtime still works on its first try: each sandbox claims one mark."""
    with mark_call(tmp_path, UID), mark_call(tmp_path, UID):
        assert [claim(tmp_path, UID, box) for box in ("box1", "box2", "box1", "box3")] == [
            *("granted", "granted", "granted"),
            "taken",
        ]


def test_one_sandbox_after_the_other_has_its_own_mark(tmp_path: Path) -> None:
    """The first one's claim does not last."""
    for box in ("box1", "box2"):
        with mark_call(tmp_path, UID):
            assert claim(tmp_path, UID, box) == "granted"


TWO_AT_ONCE = """
import sys, threading
from pathlib import Path
from mooring.records.sandbox_marks import claim, mark_call

run, place = Path(sys.argv[1]), threading.current_thread()
outcomes, opened, at = [], 0, None

def second():
    outcomes.append(claim(run, "u1", "box2"))

def watch(event, _given):
    global opened
    if event == "open" and at is not None and threading.current_thread() is place:
        opened += 1
        if opened == at:
            thread.start()
            thread.join(0.2)

sys.addaudithook(watch)
for step in range(1, 9):
    with mark_call(run, "u1"):
        outcomes.clear()
        opened, thread, at = 0, threading.Thread(target=second), step
        outcomes.append(claim(run, "u1", "box1"))
        at = None
        if not thread.ident:
            break
        thread.join()
        print(*sorted(outcomes))
"""


def test_of_two_sandboxes_at_once_one_claims_the_mark(tmp_path: Path) -> None:
    """The CNI server works in threads, beside one-shot processes: a second ADD begins at each step of the first."""
    program = [sys.executable, "-c", TWO_AT_ONCE, str(tmp_path)]
    said = subprocess.run(program, capture_output=True, text=True, check=True).stdout.splitlines()
    assert len(said) >= 3
    assert set(said) == {"granted taken"}


def test_the_mark_of_a_killed_shim_is_none(tmp_path: Path) -> None:
    """Its lock ends with the process, without a moment for cleaning up; the next shim removes the file."""
    program = (
        "import sys, time; from pathlib import Path; from mooring.records.sandbox_marks import mark_call\n"
        "with mark_call(Path(sys.argv[1]), sys.argv[2]): print('marked', flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", program, str(tmp_path), UID], stdout=subprocess.PIPE) as shim:
        assert shim.stdout is not None
        assert shim.stdout.readline() == b"marked\n"
        while_it_lived = claim(tmp_path, UID, "box1")
        shim.send_signal(signal.SIGKILL)
    assert while_it_lived == "granted"
    assert claim(tmp_path, UID, "box1") == "ended"
    assert len(marks(tmp_path)) == 1
    promise_marks(tmp_path / "state", tmp_path, "2")
    assert marks(tmp_path) == []
    assert claim(tmp_path, UID, "box1") == "none"


def test_a_starting_shim_leaves_marks_that_are_held(tmp_path: Path) -> None:
    """A test of hardware holds one as well."""
    with mark_call(tmp_path, UID):
        promise_marks(tmp_path / "state", tmp_path, "1")
        assert claim(tmp_path, UID, "box1") == "granted"


def test_what_is_being_made_is_not_a_mark_yet(tmp_path: Path) -> None:
    """A file that is not locked yet would look like an ended shim's."""
    (tmp_path / FOLDER).mkdir()
    (tmp_path / FOLDER / f".{UID}.00").touch()
    assert claim(tmp_path, UID, "box1") == "none"


@pytest.mark.parametrize("uid", ["", "../../etc", "a/b", "a.b", "x" * 64])
def test_a_uid_that_is_not_a_files_name_is_refused(tmp_path: Path, uid: str) -> None:
    """Before anything is written."""
    with pytest.raises(RecordError, match="is not a pod uid"), mark_call(tmp_path, uid):
        pass
    assert not (tmp_path / FOLDER).exists()


def test_marks_are_needed_from_a_promise_on(tmp_path: Path) -> None:
    """Where no shim has ever promised them, an older shim is at work, which writes none."""
    state, run = tmp_path / "state", tmp_path / "run"
    assert not are_needed(state, run)
    write_file(run / "version/mooring-cri-shim", "1")
    assert not are_needed(state, run)
    promise_marks(state, run, "2")
    assert (run / "version/mooring-cri-shim").read_text() == "2"
    assert are_needed(state, run)
    promise_marks(state, run, "2")
    assert are_needed(state, run)
    assert [path.name for path in (run / FOLDER).iterdir()] == [".shim"]


AT_EVERY_CALL = """
import sys
from pathlib import Path
from mooring.records.sandbox_marks import are_needed, promise_marks

state, run = Path(sys.argv[1], "state"), Path(sys.argv[1], "run")
promise_marks(state, run, "1")
needed, watching = [], True

def watch(event, _given):
    global watching
    if watching and event in {"os.link", "os.rename", "os.remove", "open"}:
        watching = False
        needed.append(are_needed(state, run))
        watching = True

sys.addaudithook(watch)
promise_marks(state, run, "2")
watching = False
print(len(needed), all(needed), are_needed(state, run))
"""


def test_marks_are_needed_at_every_moment_of_a_restart(tmp_path: Path) -> None:
    """Whatever the next shim has done so far: it is interrupted at each call that opens a file or changes a name."""
    said = subprocess.run(
        [sys.executable, "-c", AT_EVERY_CALL, str(tmp_path)], capture_output=True, text=True, check=True
    )
    calls, always, after = said.stdout.split()
    assert int(calls) > 5
    assert (always, after) == ("True", "True")


def test_an_older_shim_takes_the_promise_back(tmp_path: Path) -> None:
    """It writes its version as a new file, also where both say the same version."""
    state, run = tmp_path / "state", tmp_path / "run"
    promise_marks(state, run, "2")
    write_file(run / "version/mooring-cri-shim", "2")
    assert not are_needed(state, run)
    promise_marks(state, run, "2")
    assert are_needed(state, run)


@pytest.mark.parametrize("place", ["run/version/mooring-cri-shim", "run/sandboxes/.shim", "run/sandboxes/.shim.next"])
def test_a_folder_in_place_of_a_file_takes_no_promise_back(tmp_path: Path, place: str) -> None:
    """What can be said is said, and a shim of an earlier start has said the rest."""
    state, run = tmp_path / "state", tmp_path / "run"
    promise_marks(state, run, "1")
    (tmp_path / place).unlink(missing_ok=True)
    (tmp_path / place).mkdir()
    (state / "sandbox-marks").unlink()
    with pytest.raises(IsADirectoryError):
        promise_marks(state, run, "2")
    assert (state / "sandbox-marks").read_text() == "2"
    assert are_needed(state, run)
    assert [path.name for path in (run / "version").iterdir()] == ["mooring-cri-shim"]


def test_after_a_reboot_marks_are_needed_before_any_shim_starts(tmp_path: Path) -> None:
    """Nothing in this boot has forwarded a call; an older shim that starts then takes the promise back."""
    state = tmp_path / "state"
    promise_marks(state, tmp_path / "run", "2")
    assert are_needed(state, tmp_path / "next")
    write_file(tmp_path / "next/version/mooring-cri-shim", "1")
    assert not are_needed(state, tmp_path / "next")
