"""Bad input on standard input, in the environment or in an annotation changes nothing on the host.

Every input gets a good answer or the specification's error object. What the process did meanwhile is read from the
interpreter's audit events. So a path or a program made of input text is seen even where it does not exist.
"""

import json
import math
import os
import random
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from cni.server.dispatch import answer
from cni.spec.skel import COMMANDS, VERSIONS
from mooring import names
from mooring.nic.settings import VfSettings
from mooring.nic.vf_settings import VfSettingsApi
from mooring.records.ledger import Attachment, LedgerEntry, Netns, Original, dump_ledger_entry

INPUTS = 10_000
VF = {"pf": "eth0", "vf": 0, "pci": "0000:3b:01.0", "link": "ethernet", "network": "rail0", "min_tx_rate": 5}
ASSIGNMENT = {"v": 1, "uid": "u1", "node": "n1", "vfs": [VF]}
# An entry that no fuzzed call may touch: of another container, by another configuration.
THEIRS = LedgerEntry(
    pci="0000:3b:01.1",
    pf="eth0",
    vf=1,
    phase="held",
    boot="another",
    uid="u9",
    pod="ns/theirs",
    container="theirs",
    ifname="net1",
    netns=Netns("/nonexistent", 1),
    original=Original(name="eth9"),
    attachment=Attachment("their-network", "eth0", "rail0"),
)
PIECES = (
    *(
        "",
        "\0",
        "é",
        '"',
        "{",
        "[",
        "//",
        "null",
        "-1",
        "1e999",
        "true",
        ";",
        "=",
        "\n",
        "\ud800",
        "\u2028",
        "..",
        "%s",
    ),
    *("$(touch /tmp/x)", "`id`", "../../../etc/passwd", "9" * 400, "a" * 300, "NaN", "\\u0000", "net%d", "🦀"),
)
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_CHANGES = ("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.symlink", "os.chmod", "os.truncate")
_STARTS = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork")


class Audit:
    """What this process did while it handled the call: changes of files and starts of programs."""

    def __init__(self) -> None:
        self.deeds: list[str] | None = None
        sys.addaudithook(self._note)

    def _note(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.deeds is None:
            return
        # STATUS tries to write a file without a name into a folder: it opens the folder.
        writes = event == "open" and arguments[2] & _WRITES and not Path(str(arguments[0])).is_dir()
        if writes or event in _CHANGES or event in _STARTS:
            self.deeds.append(f"{event} {arguments[0]}")

    @contextmanager
    def looking(self) -> Iterator[list[str]]:
        deeds: list[str] = []
        self.deeds = deeds
        try:
            yield deeds
        finally:
            self.deeds = None


AUDIT = Audit()


class NoVfSettings:
    """Settings of VFs that answer nothing and take nothing."""

    def read(self, pf: str, vf: int) -> VfSettings:
        raise OSError(19, "no such device")

    def read_all(self, pf: str) -> Mapping[int, VfSettings]:
        raise OSError(19, "no such device")

    def clear_rates(self, pf: str, vfs: Iterable[int]) -> None:
        raise AssertionError(f"rates of vfs {list(vfs)} of {pf} are written")

    def write(self, pf: str, vf: int, settings: VfSettings) -> None:
        pytest.fail(f"pf {pf!r}, vf {vf}: {settings} was written")


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A state folder with one pod's record and one VF that is another's."""
    folder = tmp_path / "state"
    (folder / "pods").mkdir(parents=True)
    (folder / "vfs").mkdir()
    (folder / "pods" / "u1.json").write_text(json.dumps({"v": 1, "pod": "ns/p", "assignment": ASSIGNMENT}))
    (folder / "vfs" / f"{THEIRS.pci}.json").write_text(dump_ledger_entry(THEIRS))
    return folder


def good(chance: random.Random, folder: Path, netns: str) -> tuple[dict[str, str], dict[str, Any]]:
    """Return a call that would be a good one on a node that had the VF."""
    annotations = {names.REQUEST: json.dumps([{"min_tx_rate": 5}]), names.ASSIGNMENT: json.dumps(ASSIGNMENT)}
    conf: dict[str, Any] = {
        "cniVersion": chance.choice(VERSIONS),
        "name": "net",
        "type": "mooring-cni",
        "node": "n1",
        "state": str(folder / "state"),
        "run": str(folder / "run"),
        "sysfs": str(folder / "sys"),
        "ipam": {"type": "host-local", "subnet": "10.0.0.0/24"},
        "networks": {"rail0": {"mtu": 9000, "routes": [{"dst": "10.1.0.0/16", "gw": "10.0.0.1"}]}},
        "holdTimeoutSeconds": 0,
        "runtimeConfig": {"io.kubernetes.cri.pod-annotations": annotations, "ips": ["10.0.0.5/24"]},
        "prevResult": {"cniVersion": "1.0.0", "interfaces": [{"name": "eth0"}], "ips": [{"address": "10.2.0.2/24"}]},
        "cni.dev/valid-attachments": [{"containerID": "c1", "ifname": "eth0"}],
    }
    uid = chance.choice(["u1", "u2"])
    environment = {
        "CNI_COMMAND": chance.choice(COMMANDS),
        "CNI_CONTAINERID": "c1",
        "CNI_NETNS": netns,
        "CNI_IFNAME": "eth0",
        "CNI_ARGS": f"IgnoreUnknown=1;K8S_POD_NAMESPACE=ns;K8S_POD_NAME=p;K8S_POD_UID={uid}",
        "CNI_PATH": "/nonexistent/cni/bin",
    }
    return environment, conf


def damaged(chance: random.Random, environment: dict[str, str], conf: dict[str, Any]) -> tuple[dict[str, str], bytes]:
    """Damage a good call in one or more places: a variable, a value anywhere in the JSON, or the JSON's own text."""
    for _ in range(chance.randrange(1, 4)):
        kind = chance.randrange(4)
        if kind == 0:
            name = chance.choice(sorted(environment))
            environment[name] = garble(environment[name], chance).translate({0: None, 0xD800: None})
        elif kind == 1:
            replace_somewhere(conf, chance)
        elif kind == 2:
            annotations = conf.get("runtimeConfig")
            if isinstance(annotations, dict) and isinstance(annotations.get("io.kubernetes.cri.pod-annotations"), dict):
                of_pod = annotations["io.kubernetes.cri.pod-annotations"]
                key = chance.choice([names.REQUEST, names.ASSIGNMENT, names.RIT_REQUEST])
                of_pod[key] = garble(str(of_pod.get(key, "[]")), chance)
        else:
            environment.pop(chance.choice(sorted(environment)), None)
            environment.setdefault("CNI_COMMAND", "")
    text = json.dumps(conf)
    text = garble(text, chance) if chance.random() < 0.2 else text
    return environment, text.encode(errors="surrogatepass")


def replace_somewhere(document: Any, chance: random.Random) -> None:
    """Replace a value at a random depth by one of another kind."""
    while True:
        places = sorted(document) if isinstance(document, dict) else list(range(len(document)))
        if not places:
            return
        place = chance.choice(places)
        below = document[place]
        if isinstance(below, dict | list) and below and chance.random() < 0.7:
            document = below
            continue
        document[place] = chance.choice([None, True, -1, 1.5, math.nan, math.inf, "", [], {}, [[]], {"": ""}, *PIECES])
        return


def garbage(chance: random.Random) -> bytes:
    kind = chance.randrange(5)
    if kind == 0:
        return chance.randbytes(chance.randrange(300))
    if kind == 1:
        return chance.choice([b"[", b'{"a":']) * chance.randrange(1, 5000)
    if kind == 2:
        return json.dumps(chance.choice([None, [], 0, "", True, [{}]])).encode()
    if kind == 3:
        return b'{"cniVersion":"1.0.0","name":"net","state":"\\ud800"}'
    return b"9" * chance.randrange(1, 6000)


def garble(text: str, chance: random.Random) -> str:
    if chance.random() < 0.15 or not text:
        return chance.choice(PIECES)
    at = chance.randrange(len(text))
    return text[:at] + chance.choice(PIECES) + text[at + chance.randrange(3) :]


def is_answer(status: int, text: str) -> bool:
    """Return whether a call was answered as the specification wants it."""
    document = json.loads(text, parse_constant=pytest.fail) if text else {}
    if status == 0:
        return not text or "cniVersion" in document
    fields_are_right = isinstance(document.get("code"), int) and isinstance(document.get("msg"), str)
    return status == 1 and fields_are_right and document["cniVersion"] in VERSIONS and bool(document["msg"])


def tree(folder: Path) -> dict[str, str]:
    return {str(path): path.read_text() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_any_input_is_answered_and_nothing_happens(state: Path, tmp_path: Path) -> None:
    """10,000 seeded inputs, half of them damaged good calls: no traceback, no program started, no file but a lock."""
    chance = random.Random(20)
    vf_settings: VfSettingsApi = NoVfSettings()
    before = tree(state)
    codes: dict[int, int] = {}
    with capture_logs() as logs, AUDIT.looking() as deeds:
        for number in range(INPUTS):
            environment, conf = good(chance, tmp_path, "/nonexistent/netns")
            stdin = garbage(chance)
            if number % 2:
                environment, stdin = damaged(chance, environment, conf)
            done = answer(environment, stdin, vf_settings=lambda: vf_settings)
            assert is_answer(done.status, done.text), (environment, stdin, done)
            codes[done.code] = codes.get(done.code, 0) + 1
    assert [log for log in logs if log["event"] == "call failed unexpectedly"] == []
    assert {
        deed for deed in deeds if str(tmp_path / "run" / "locks") not in deed and deed != f"os.mkdir {tmp_path}/run"
    } == set()
    assert tree(state) == before
    assert {0, 1, 4, 6, 7, 100} <= codes.keys(), codes


@pytest.mark.root
@pytest.mark.skipif(not Path("/usr/lib/cni/host-local").exists(), reason="containernetworking-plugins is missing")
def test_any_input_to_the_real_executable_changes_nothing(host: Any) -> None:
    """Raw bytes, to the program alone and through the server: each gets an answer, and the host is as before."""
    chance = random.Random(21)
    before = host.everything()
    program = (b"nsenter", f"--net={host.layout.netns}".encode(), str(host.layout.cni_bin / "mooring-cni").encode())
    for served in (False, True):
        if served:
            with host.served():
                feed(program, chance, host, 60)
        else:
            feed(program, chance, host, 6)
    assert host.everything() == before


def feed(program: tuple[bytes, ...], chance: random.Random, host: Any, inputs: int) -> None:
    for number in range(inputs):
        environment, conf = good(chance, host.layout.home, "/nonexistent/netns")
        conf |= {"state": str(host.layout.state), "run": str(host.layout.run), "sysfs": str(host.layout.sys)}
        stdin = garbage(chance)
        if number % 2:
            environment, stdin = damaged(chance, environment, conf)
        raw = {name.encode(): value.encode(errors="surrogatepass") for name, value in environment.items()}
        raw[b"CNI_ARGS"] = raw.get(b"CNI_ARGS", b"") + chance.choice([b"", b"\xff\xfe", b";=;;\xc3"])
        raw.setdefault(b"CNI_COMMAND", b"FROB")
        done = subprocess.run(
            program, input=stdin, env={b"PATH": b"/usr/bin:/bin", **raw}, capture_output=True, check=False, timeout=90
        )
        assert is_answer(done.returncode, done.stdout.decode()), (raw, stdin, done)
