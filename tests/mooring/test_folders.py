"""Folders of records and single files: what lies there may be anything, and keeps no reader."""

import errno
import os
import resource
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from mooring import folders
from mooring.files import ForeignFileError, read_file, read_foreign_file, read_own_file, read_record
from mooring.folders import entry_names, foreign_entries, is_record, read_folder, record_names
from mooring.names import is_uid, with_suffix
from tests.support.foreign import FOREIGN

IS_NAME = with_suffix(is_uid)
_MOST_S = 20


def within(work: Callable[[], object]) -> object:
    """Return what is done in time and with little memory; fail instead of waiting for ever."""
    done: list[object] = []
    thread = threading.Thread(target=lambda: done.append(work()), daemon=True)
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    thread.start()
    thread.join(_MOST_S)
    assert done, "it waits"
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib < 64 << 10
    return done[0]


def refusal(read: Callable[[Path], object], path: Path) -> str:
    """Return the error that a read raises, or what it returned."""

    def tried() -> str:
        try:
            return f"read {read(path)!r}"
        except OSError as refused:
            return type(refused).__name__

    return str(within(tried))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "u1.json").write_text('{"v":1}')
    return tmp_path


@pytest.mark.root
@pytest.mark.parametrize("kind", FOREIGN)
def test_what_is_no_record_is_passed_over_and_named(folder: Path, kind: str) -> None:
    """A folder, a pipe, a socket, links, a file of 8 GiB, one of another user: under a record's name each."""
    FOREIGN[kind](folder / "u2.json")
    (folder / "u3.json").write_text('{"v":3}')
    read = dict(within(lambda: list(read_folder(folder, IS_NAME))))  # type: ignore[call-overload]
    assert (read["u1.json"], read["u3.json"]) == ('{"v":1}', '{"v":3}')
    assert isinstance(read["u2.json"], ForeignFileError)
    assert list(foreign_entries(folder, IS_NAME)) == ["u2.json"]
    assert record_names(folder, IS_NAME) == ("u1.json", "u3.json")
    assert entry_names(folder, IS_NAME) == ("u1.json", "u2.json", "u3.json")
    assert (is_record(folder / "u1.json"), is_record(folder / "u2.json")) == (True, False)


@pytest.mark.parametrize("kind", [kind for kind in FOREIGN if kind not in ("dangling", "anothers")])
@pytest.mark.parametrize("read", [read_file, read_own_file, read_record, lambda path: read_foreign_file(path, 99)])
def test_no_single_file_keeps_its_reader(tmp_path: Path, kind: str, read: Callable[[Path], object]) -> None:
    """Keys, an offer, a version: a pipe or an endless device in the place of one is an error at once."""
    FOREIGN[kind](tmp_path / "x")
    assert refusal(read, tmp_path / "x") in ("ForeignFileError", "OSError")


def test_a_link_to_a_file_is_followed_for_what_an_operator_writes_and_for_no_record(folder: Path) -> None:
    """The volume of a ConfigMap consists of links; none of our programs writes one."""
    (folder / "link.json").symlink_to("u1.json")
    assert read_file(folder / "link.json") == '{"v":1}'
    assert refusal(read_record, folder / "link.json") == "ForeignFileError"


def test_names_of_other_things_are_named_as_they_can_be_written(folder: Path) -> None:
    """Not UTF-8, a line break, a leftover of an interrupted write, which is nobody's."""
    for name in (b"\xff.json", b"no uid.json", b"u1.txt", b".u1.json.7.tmp"):
        (folder / os.fsdecode(name)).write_text("{}")
    foreign = foreign_entries(folder, IS_NAME)
    assert record_names(folder, IS_NAME) == ("u1.json",)
    assert set(foreign) == {"\\udcff.json", "no uid.json", "u1.txt"}
    assert set(foreign.values()) == {"not a name of this folder"}


def test_a_folder_that_is_absent_or_none_is_empty(folder: Path) -> None:
    """A file in the place of a folder of records holds none."""
    for path in (folder / "absent", folder / "u1.json"):
        assert (list(read_folder(path, IS_NAME)), foreign_entries(path, IS_NAME)) == ([], {})
    assert read_record(folder / "u1.json/x") is None


def test_more_entries_than_any_node_has_are_said_and_not_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever must know all of them learns that these are not all."""
    monkeypatch.setattr(folders, "_MOST_RECORDS", 2)
    for uid in ("u2", "u3", "u4"):
        (folder / f"{uid}.json").write_text("{}")
    read = list(read_folder(folder, IS_NAME))
    assert [name for name, _ in read].count("") == 1
    assert len(read) == 3
    (excess,) = [why for name, why in read if not name]
    assert isinstance(excess, OSError)
    assert (excess.errno, foreign_entries(folder, IS_NAME)[""]) == (errno.EFBIG, "too many entries")
    with pytest.raises(OSError, match="too many entries"):
        entry_names(folder, IS_NAME)


def test_a_file_without_a_size_is_read_as_far_as_is_allowed() -> None:
    """The kernel's own files say 0 bytes, and a file may grow while it is read."""
    assert "VmRSS" in (read_file(Path("/proc/self/status")) or "")
    with pytest.raises(ForeignFileError, match="longer than 9 bytes"):
        read_file(Path("/proc/self/status"), 9)
