"""Whatever YAML a file has, each reader of YAML answers soon, with its own error."""

import resource
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import make_dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest

from advertiser.host.gpu.documents import GpusFile
from advertiser.host.offer_file import parse_offer
from advertiser.inventory.gpu.gpus_file import GpusFileError
from advertiser.inventory.offer import OfferError
from cli.node.admission_policies import read_policies
from cli.node.errors import NodeError
from cli.node.plan import settings
from cli.node.plan.kubelet.config_text import set_endpoint
from cli.node.plan.states import File, Host
from cli.plugin.reports.lint.report import report
from mooring.bounded_yaml import Bounds, YamlError, documents, load, load_documents, to_json
from mooring.gpu.cdi_folders import CdiFolders
from mooring.kube.kubeconfig.auth_provider import provider_token
from mooring.kube.kubeconfig.document import read_kubeconfig
from mooring.kube.kubeconfig.errors import KubeconfigError
from mooring.program import config
from mooring.program.config import ConfigError
from tests.support.seeds import Part

# CPU seconds and MiB that a reader may take for one hostile text.
MOST_S, MOST_MIB = 1.0, 64


def _levels(form: str, levels: int = 9) -> str:
    """Return a list of anchors, each of which repeats the one before it nine times."""
    lines = (f"- &a{level} " + form % ",".join([f"*a{level - 1}"] * 9) for level in range(1, levels))
    return "\n".join(("- &a0 {x: 1}", *lines, ""))


BOMBS = {
    "aliases": _levels("[%s]"),
    "aliases of mappings": _levels("{x: [%s]}"),
    "merges": _levels("{<<: [%s]}"),
    "a key": "? " + _levels("[%s]").replace("\n", "\n  ") + "\n: 1\n",
    "an alias as key": "a: &a " + "[" * 30 + "x" + "]" * 30 + "\nb: {? *a : 1}\n",
    "a long scalar repeated": "a: &a " + "x" * 100_000 + "\nb: [" + "*a, " * 10_000 + "]\n",
    "levels by aliases": "- &a0 [1]\n" + "".join(f"- &a{level} [*a{level - 1}]\n" for level in range(1, 2000)),
    "levels": "[" * 10_000,
    "levels in blocks": "- " * 10_000,
    "levels of JSON": '{"a":' * 10_000,
    "an alias within its anchor": "&a [*a]",
    "a merge within its anchor": "a: &a {<<: *a}",
    "a number in base 60": "a: " + "1:" * 100_000 + "1",
    "digits": "a: " + "9" * 100_000,
    "a long tag": "%TAG ! " + "x" * 100_000 + "\n---\n[" + "!a b, " * 50_000 + "]",
    "many documents": "---\n" * 5_000,
    "many values": "[" + "a, " * 5_000 + "]",
}
MISMATCHES = [
    '!!int ""', '!!int "_"', "!!int 1:", "!!int 0x", '!!float ""', "!!float x", "!!timestamp x",
    "!!timestamp 2001-99-99", "!!bool x", "!!binary \xe9", "!!binary x", "!!python/name:os.system", "!!merge x",
    "!!value =", "!!set [a]", "!!omap x", "*none", "{<<: 1}", "? [a]", "? {a: 1}", "\x01", "\ud800", '"\\ud800"', "[",
    "}", "%YAML 9.9\n--- a", "\ufeff\ufeff", "- !x y",
]  # fmt: skip


def _in_file(read: Callable[[Path], object], name: str = "file.yaml") -> Callable[[str, Path], object]:
    def read_text(text: str, folder: Path) -> object:
        path = folder / name
        path.write_text(text, encoding="utf-8", errors="surrogatepass")
        return read(path)

    return read_text


def _config(path: Path) -> object:
    options = make_dataclass("Options", [("port", int, config.option(1, "a port"))])
    return config.load(options, "mooring-scheduler", ["--config", str(path)], {})


def _lint(text: str, _: Path) -> object:
    return report([("f.yaml", text)], ("mooring",))


# Each reader with the only error that it may raise.
READERS: dict[str, tuple[Callable[[str, Path], object], tuple[type[Exception], ...]]] = {
    "offer": (lambda text, _: parse_offer(text, "offer.yaml"), (OfferError,)),
    "GPU file": (_in_file(lambda path: GpusFile(path, required=True)), (GpusFileError,)),
    "CDI": (_in_file(lambda path: CdiFolders([path.parent]).devices()), ()),
    "kubeconfig": (_in_file(lambda path: read_kubeconfig([path])), (KubeconfigError,)),
    "auth-provider": (_in_file(lambda path: provider_token(str(path), "me")), (KubeconfigError,)),
    "kubelet's kubeconfig": (_in_file(read_policies), ()),
    "configuration": (_in_file(_config), (ConfigError,)),
    "settings": (
        lambda text, _: settings.settle(Host({settings.PATH: File(text)}), {"vf_settings": "netlink"}), (NodeError,)
    ),
    "kubelet configuration": (lambda text, _: set_endpoint("config.yaml", text, "unix:///run/x.sock"), (NodeError,)),
    "lint": (_lint, ()),
}  # fmt: skip


@pytest.mark.parametrize("name", READERS)
def test_no_text_costs_a_reader_much_or_gets_another_error(name: str, tmp_path: Path) -> None:
    read, errors = READERS[name]
    expensive = []
    for shape, text in (*BOMBS.items(), *((text, f"a: {text}\n") for text in MISMATCHES)):
        began_s, before_kib = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with suppress(*errors):
            read(text, tmp_path)
        took_s = time.process_time() - began_s
        mib = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib) / 1024
        if took_s > MOST_S or mib > MOST_MIB:
            expensive.append(f"{shape}: {took_s:.2f} s, {mib:.0f} MiB")
    assert expensive == []


WORDS = [
    "a", "b: ", "- ", "[", "]", "{", "}", ", ", ": ", "? ", "&a ", "*a", "&b ", "*b", "<<: ", "!!int ", "!!float ",
    "!!str ", "!!set ", "!!omap ", "!!timestamp ", "!!binary ", "!!bool ", "!!null ", "! ", "|\n", ">-\n", "'", '"',
    "\n", "\n  ", "\t", "#", "---\n", "...\n", "%TAG ! x\n", "%YAML 1.1\n", "0x1f", "1:30", ".inf", "2001-01-01", "~",
    "=", "@", "`", "\xe9", "\x7f", "999999999999999999999999", "v: 1", "pfs: ", "kind: Pod", "users: ", "name: me",
    "containerRuntimeEndpoint: x", "\r\n", "1e400", "-0", "on", "\\",
]  # fmt: skip


def _soup(random: Random) -> str:
    return "".join(random.choices(WORDS, k=random.randint(1, 12)))


def test_any_words_of_yaml_are_a_value_or_a_yaml_error(part: Part, tmp_path: Path) -> None:
    """Each of the readers gets one text in a hundred; with ``--long`` all get 20,000."""
    random = part.random("yaml")
    for number in range(20_000 if part.whole else 2_000):
        text = _soup(random)
        for read in (load, load_documents, to_json):
            with suppress(YamlError):
                read(text)
        for name, (of_reader, errors) in READERS.items() if part.whole or number % 100 == 0 else ():
            try:
                of_reader(text, tmp_path)
            except errors:
                pass
            except Exception as wrong:
                raise AssertionError(f"{name} of {text!r}") from wrong


def _rule(text: str, bounds: Bounds) -> str:
    with pytest.raises(YamlError) as raised:
        load(text, bounds)
    return str(raised.value)


def _bounded(**limits: int) -> Bounds:
    return Bounds(**limits)


def test_a_bound_is_named_with_place_and_value() -> None:
    """A text at each bound is read, one past it is not."""
    assert load("[a, b]", _bounded(values=3)) == ["a", "b"]
    assert _rule("[a, b, c]", _bounded(values=3)) == "line 1, column 8: more than 3 values"
    assert _rule("- &a [x]\n- *a", _bounded(values=4)) == "line 2, column 3: more than 4 values"
    assert load("[[a]]", _bounded(depth=2)) == [["a"]]
    assert _rule("[[[a]]]", _bounded(depth=2)) == "line 1, column 3: nested deeper than 2 levels"
    assert _rule("- &a [x]\n- [*a]", _bounded(depth=2)) == "line 2, column 4: nested deeper than 2 levels"
    assert _rule("- abcd", _bounded(scalar=3)) == "line 1, column 3: a scalar of 4 characters exceeds the limit of 3"
    assert _rule("- a", _bounded(characters=2)) == "3 characters exceed the limit of 2"
    assert _rule('!!int ""', Bounds()).startswith("line 1, column 1: '' does not match the tag 'int': ")
    assert _rule("a\n---\nb", Bounds()) == "line 3, column 1: a second document begins here, but only one is allowed"


def test_what_kubernetes_reads_has_the_same_value() -> None:
    """Merges, anchors and large integers, which go-yaml reads as floats; JSON stays as it is."""
    assert load("a: &a {x: 1}\nb: {<<: *a, y: [*a, *a]}") == {
        "a": {"x": 1}, "b": {"x": 1, "y": [{"x": 1}, {"x": 1}]}
    }  # fmt: skip
    assert load(f"[{(1 << 64) - 1}, {1 << 64}]") == [(1 << 64) - 1, float(1 << 64)]
    assert to_json('{"a":1,"a":2}') == '{"a":1,"a":2}'
    assert (load(""), load_documents("a\n---\nb")) == (None, ["a", "b"])


def test_documents_before_the_first_fault_are_given() -> None:
    found: Iterator[Any] = (document.value() for document in documents("a: 1\n---\nb: ["))
    assert next(found) == {"a": 1}
    with pytest.raises(YamlError, match="line 4, column 1: "):
        next(found)
