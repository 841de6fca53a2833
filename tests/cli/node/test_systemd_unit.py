"""A service's command as systemd makes it of the unit, its drop-ins and its environment files."""

import pytest

from cli.node.plan.kubelet.systemd_unit import Service, read_environment, read_service, split_words
from cli.node.plan.states import File, Host

_UNIT = "/usr/lib/systemd/system/kubelet.service"
_DROP_IN = "/etc/systemd/system/kubelet.service.d/10-a.conf"

ENVIRONMENT = """\
# A=comment
; B=comment
A="--b \\
--c=d" \

B=x y\t
 C = 'q "r\\'
D="a" "b"
E=foo"bar"\r
F=a\\
b
G="a\\"b\\\\c\\d"
nothing
H=
I=last"""


def _service(files: dict[str, str]) -> Service | None:
    return read_service(Host({path: File(text) for path, text in files.items()}), "kubelet.service")


def _words(files: dict[str, str]) -> tuple[str, ...]:
    service = _service(files)
    assert service is not None
    return service.words


def test_an_environment_file_is_read_as_systemd_reads_it() -> None:
    """env-file.c: quotes only at the beginning of a value, lines that go on, spaces at the end of a line."""
    assert read_environment(ENVIRONMENT) == {
        "A": "--b --c=d", "B": "x y", "C": 'q "r\\', "D": "ab", "E": 'foo"bar"', "F": "ab", "G": 'a"b\\c\\d', "H": "",
        "I": "last",
    }  # fmt: skip


def test_words_are_split_as_systemd_splits_them() -> None:
    """Quotes may begin within a word, and escapes are C's."""
    line = r"""kubelet "a b" 'c d' e\x20f "g\"h" i"j k"l "" """
    assert split_words(line) == ["kubelet", "a b", "c d", "e f", 'g"h', "ij kl", ""]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("k $A", ("k", "--x=1", "--y=2 3")),
        ('k "$A"', ("k", "--x=1", "--y=2 3")),
        ("k ${A}", ("k", "--x=1 --y='2 3'")),
        ("k --z=${B}$B", ("k", "--z=b$B")),
        ("k $NOTHING ${NOTHING} $$B", ("k", "", "$B")),
        ("-:/k $A", ("/k", "$A")),
        ("k %% %n", ("k", "%", "kubelet.service")),
        ('/bin/sh -c "exec k --z=$B $$A"', ("exec", "k", "--z=b", "--x=1", "--y=2 3")),
        ("k --one \\\n# a comment between\n  --two", ("k", "--one", "--two")),
    ],
)
def test_variables_are_replaced_as_systemd_replaces_them(line: str, words: tuple[str, ...]) -> None:
    """systemd.service(5), COMMAND LINES."""
    variables = "Environment=\"A=--x=1 --y='2 3'\" B=b"
    assert _words({_UNIT: f"[Service]\n{variables}\nExecStart={line}\n"}) == words


def test_drop_ins_count_by_name_and_a_later_command_after_an_empty_one() -> None:
    """One in /etc replaces the one of its name in /usr/lib; a link to /dev/null, an empty file here, masks one."""
    packaged = "/usr/lib/systemd/system/kubelet.service.d"
    files = {
        _UNIT: "[Unit]\nExecStart=no\n[Service]\nEnvironment=A=unit\nExecStart=first $A\n",
        f"{packaged}/10-a.conf": "[Service]\nExecStart=\nExecStart=hidden\n",
        _DROP_IN: "[Service]\nExecStart=\nExecStart=second $A\n",
        f"{packaged}/20-b.conf": "[Service]\nEnvironment=A=later\n",
        f"{packaged}/30-c.conf": "[Service]\nExecStart=\nExecStart=third\n",
        "/run/systemd/system/kubelet.service.d/30-c.conf": "",
        "/etc/systemd/system/service.d/05-all.conf": "[Service]\nEnvironment=A=all\n",
    }
    service = _service(files)
    assert service is not None
    assert service.words == ("second", "later")
    assert [path.rpartition("/")[2] for path in service.files] == [
        *("kubelet.service", "05-all.conf", "10-a.conf", "20-b.conf", "30-c.conf"),
    ]


def test_environment_files_count_more_than_environment_and_the_later_one_more() -> None:
    """``-`` allows one to be missing, a pattern names several, and an empty setting begins the list again."""
    files = {
        _UNIT: "[Service]\nEnvironmentFile=/etc/none\nEnvironmentFile=\nEnvironmentFile=-/etc/missing\n"
        "EnvironmentFile=/etc/k/*.env\nExecStart=k $A $B\nEnvironment=A=unit B=unit\n",
        "/etc/none": "B=none\n",
        "/etc/k/1.env": "A=one\n",
        "/etc/k/2.env": "A=two\n",
        "/etc/k/3.txt": "A=three\n",
    }
    assert _words(files) == ("k", "two", "unit")


def test_a_unit_that_is_masked_starts_nothing() -> None:
    """A link to /dev/null in /etc hides the unit below /usr/lib."""
    assert _service({_UNIT: "[Service]\nExecStart=k\n", "/etc/systemd/system/kubelet.service": ""}) is None
