"""The contract's documents: what is written is read again, bytes are frozen, and no input does anything else."""

import copy
import json
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from mooring import names
from mooring.annotations.assignment import _read_canonical, dump_assignment, read_assignment, verified_assignment
from mooring.annotations.inventory import dump_inventory, read_inventory
from mooring.annotations.request import asks_for_vfs, dump_interfaces, read_request
from mooring.errors import AnnotationError, ContractError, RecordError
from mooring.records.ledger import dump_ledger_entry, read_ledger_entry
from mooring.records.pod_record import dump_pod_record, read_pod_record
from mooring.records.rates_exchange import dump_handed_over, dump_state, read_handed_over, read_state
from mooring.records.rates_record import dump_rates_record, read_rates_record

GOLDEN = Path(__file__).parent / "golden"
PCI = "0000:3b:00.2"


def request(text: str) -> str:
    found = read_request({names.REQUEST: text})
    assert found is not None
    return dump_interfaces(found.interfaces)


def rit_request(text: str) -> str:
    found = read_request({names.RIT_REQUEST: text})
    assert found is not None
    return dump_interfaces(found.interfaces)


def placement(text: str) -> str:
    found = read_request({names.REQUEST: "[]", names.PLACEMENT: text})
    return json.dumps({"pfs": found.pfs if found else None}, separators=(",", ":"))


# Each document: how it is read and written again, and the error that anything unreadable must be.
DOCUMENTS: Mapping[str, tuple[Callable[[str], str], type[ContractError]]] = {
    "interfaces": (request, AnnotationError),
    "rdma_interfaces_required": (rit_request, AnnotationError),
    "placement": (placement, AnnotationError),
    "inventory": (lambda text: dump_inventory(read_inventory(text)), AnnotationError),
    "assignment": (lambda text: dump_assignment(read_assignment(text)), AnnotationError),
    "podrecord": (lambda text: dump_pod_record(read_pod_record(text, "pods/8c2f.json")), RecordError),
    "ratesrecord": (lambda text: dump_rates_record(read_rates_record(text, "rates/8c2f.json")), RecordError),
    "handedoverrates": (lambda text: dump_handed_over(read_handed_over(text, "u1.json")), RecordError),
    "ratesstate": (lambda text: dump_state(read_state(text, "u1.json")), RecordError),
    "ledger": (lambda text: dump_ledger_entry(read_ledger_entry(text, f"vfs/{PCI}.json")), RecordError),
}


def golden(name: str) -> tuple[str, str]:
    """Return a document as a person wrote it, and the bytes that it is written as."""
    written = (GOLDEN / f"{name}.json").read_text()
    return written, (GOLDEN / f"{name}.frozen.json").read_text().rstrip("\n")


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_document_is_written_as_the_frozen_bytes(name: str) -> None:
    """What other versions and users' jq read does not change unnoticed."""
    written, frozen = golden(name)
    assert DOCUMENTS[name][0](written) == frozen


@pytest.mark.parametrize("name", [name for name in DOCUMENTS if name != "rdma_interfaces_required"])
def test_what_is_written_is_read_again(name: str) -> None:
    """Reading the frozen bytes gives the same bytes."""
    _, frozen = golden(name)
    assert DOCUMENTS[name][0](frozen) == frozen


@pytest.mark.parametrize("name", DOCUMENTS)
def test_any_input_loads_or_is_refused_by_key_path_and_rule(name: str) -> None:
    """1,500 seeded inputs a document, 15,000 in all, half of them damaged good ones: nothing else ever happens."""
    again, error = DOCUMENTS[name]
    chance = random.Random(name)
    good = json.loads(golden(name)[0])
    refused = loaded = 0
    for number in range(1500):
        text = damaged(good, chance) if number % 2 else anything(chance)
        written = written_or_refused(again, text, error)
        refused += written is None
        if written is not None:
            loaded += 1
            if name != "rdma_interfaces_required":
                assert again(written) == written
    assert refused > 100
    assert loaded > 0


def written_or_refused(again: Callable[[str], str], text: str, error: type[ContractError]) -> str | None:
    """Return what a text is written as, None if it is refused as it must be: with key, path and rule, and briefly."""
    try:
        return again(text)
    except error as unreadable:
        named = bool(unreadable.key and unreadable.rule) and len(str(unreadable)) < 1000
    if not named:
        pytest.fail(f"refused without naming key and rule: {text[:200]!r}")
    return None


ODD: tuple[Any, ...] = (
    *(
        None,
        True,
        -1,
        0,
        1,
        65,
        2**31,
        2**64,
        1.5,
        -0.0,
        1e308,
        "",
        "0",
        "x" * 300,
        "é",
        "\u0000",
        "..",
        "a/b",
        "a b\n",
    ),
    *("0000:3b:00.2\n", "0-9,5", "٣", "ff:ff:ff:ff:ff:ff", "00:00:00:00:00:00", [], {}, [[]], {"v": 2}, [None] * 70),
)
TEXTS = (
    *("", " ", "null", "NaN", "[NaN]", "[1e999]", "{", "[", "]", '"', "[" * 100_000, '{"a":' * 5000, "9" * 5000, "-"),
    *(
        '{"v":1,"v":2}',
        '["\\ud800"]',
        "[" + "9" * 5000 + "]",
        "\ufeff[]",
        "[]x",
        '{"v":true}',
        "[{}]" * 2,
        "x" * 300_000,
    ),
)


def anything(chance: random.Random) -> str:
    kind = chance.randrange(3)
    if kind == 0:
        return chance.choice(TEXTS)
    if kind == 1:
        return json.dumps(nested(chance, 4))
    return "".join(chance.choice('{}[]",:0123456789.eE+-truefalsn\\u \n\té\u2028') for _ in range(chance.randrange(60)))


def nested(chance: random.Random, depth: int) -> Any:
    if depth == 0 or chance.random() < 0.3:
        return odd(chance)
    if chance.random() < 0.5:
        return [nested(chance, depth - 1) for _ in range(chance.randrange(4))]
    keys = ("v", "uid", "node", "vfs", "pfs", "min_tx_rate", "mac", "name", "x", "boot", "pci", "y" * 5_000)
    return {chance.choice(keys): nested(chance, depth - 1) for _ in range(chance.randrange(5))}


def damaged(good: Any, chance: random.Random) -> str:
    """Return a good document with one to three values replaced, removed or added, or its text cut."""
    document = json.loads(json.dumps(good))
    for _ in range(chance.randrange(1, 4)):
        document = spoil(document, chance)
    text = json.dumps(document)
    return text if chance.random() < 0.9 else text[: chance.randrange(len(text) + 1)]


def spoil(document: Any, chance: random.Random) -> Any:
    if isinstance(document, dict) and document and chance.random() < 0.9:
        key = chance.choice(sorted(document))
        if chance.random() < 0.15:
            document.pop(key)
        elif chance.random() < 0.1:
            document[chance.choice(("x", "V", "min_tx_rat", ""))] = odd(chance)
        else:
            document[key] = spoil(document[key], chance)
        return document
    if isinstance(document, list) and document and chance.random() < 0.9:
        index = chance.randrange(len(document))
        document[index] = spoil(document[index], chance)
        return document
    return odd(chance)


def odd(chance: random.Random) -> Any:
    """Return an odd value of its own: what is put into a document twice must not be one object."""
    return copy.deepcopy(chance.choice(ODD))


@pytest.mark.parametrize(
    ("annotations", "says"),
    [
        (
            {names.REQUEST: '[{"min_tx_rate":30000,"max_tx_rate":20000}]'},
            "[0].min_tx_rate: 30000 exceeds max_tx_rate 20000",
        ),
        ({names.REQUEST: '[{},{"min_tx_rat":1}]'}, "[1].min_tx_rat: unknown field"),
        ({names.REQUEST: "[]", names.RIT_REQUEST: "[]"}, "only one may be given"),
        ({names.REQUEST: json.dumps([{}] * 65)}, "more than 64"),
        ({names.REQUEST: '[{"name":"a"},{"name":"a"}]'}, "another interface of this pod"),
        ({names.REQUEST: '[{"name":"eth0"}]'}, "[0].name: 'eth0' is an interface that every pod already has"),
        ({names.REQUEST: '[{},{"name":"lo"}]'}, "[1].name: 'lo' is an interface that every pod already has"),
        ({names.REQUEST: '[{"qos":3}]'}, "qos without a vlan"),
        ({names.REQUEST: '[{"vlan":4095}]'}, "from 0 to 4094"),
        ({names.REQUEST: '[{"mac":"01:00:5e:00:00:01"}]'}, "unicast"),
        ({names.REQUEST: '[{"containers":[]}]'}, "at least one container"),
        ({names.REQUEST: "[]", names.PLACEMENT: '{"pfs":"all"}'}, "pack, spread, distinct"),
        ({names.RIT_REQUEST: '[{"min_tx_rate":-1}]'}, "[0].min_tx_rate: -1 is not an integer"),
    ],
)
def test_a_bad_request_is_refused_in_words(annotations: dict[str, str], says: str) -> None:
    """The text names the field and the rule, for `kubectl describe`; such a pod still counts as one with a request."""
    with pytest.raises(AnnotationError) as error:
        read_request(annotations)
    assert says in str(error.value)
    assert asks_for_vfs(annotations)


def test_rit_k8s_rdmas_list_is_read_as_its_decoder_did() -> None:
    """Unknown fields and nulls are skipped; null is not a list."""
    assert rit_request('[{"min_tx_rate":5,"max_tx_rate":null,"vlan":"x"},{}]') == '[{"min_tx_rate":5},{}]'
    assert rit_request("null") == "[]"


def test_64_interfaces_are_allowed_and_none_is_an_answer() -> None:
    """The most that a pod may request, the least, and no request at all."""
    assert request(json.dumps([{}] * 64)) == json.dumps([{}] * 64, separators=(",", ":"))
    assert read_request({}) is None
    assert not asks_for_vfs({names.REQUEST: "[]"})


@pytest.mark.parametrize(("uid", "node"), [("other", "n1"), ("8c2f", "n2")])
def test_an_assignment_for_another_pod_or_node_is_not_believed(uid: str, node: str) -> None:
    """Promise 2: it names the pod and the node that it is for."""
    annotations = {names.ASSIGNMENT: golden("assignment")[1]}
    assert verified_assignment(annotations, "8c2f", "n1") is not None
    assert verified_assignment({}, uid, node) is None
    with pytest.raises(AnnotationError, match="is not this pod's"):
        verified_assignment(annotations, uid, node)


def test_readers_of_inventories_pass_over_what_they_do_not_know() -> None:
    """An older scheduler reads a newer advertiser's inventory; an older node refuses a newer assignment."""
    document = json.loads(golden("inventory")[0])
    document["new"] = document["pfs"][0]["newer"] = {"x": 1}
    assert dump_inventory(read_inventory(json.dumps(document))) == golden("inventory")[1]
    newer = json.loads(golden("assignment")[0]) | {"new": 1}
    with pytest.raises(AnnotationError, match="unknown field"):
        read_assignment(json.dumps(newer))


def outcome(read: Callable[[str], object], text: str) -> object:
    """Return what a text is read as, or the error without the place where JSON's grammar ends."""
    try:
        return read(text)
    except AnnotationError as error:
        return str(error).partition(" not valid JSON")[:2]


def mangled(text: str, chance: random.Random) -> str:
    """Return a text with a few pieces of itself, or of what has a meaning in JSON, put in or taken away."""
    for _ in range(chance.randrange(4)):
        start, end = sorted(chance.choices(range(len(text) + 1), k=2))
        piece = chance.choice(
            [text[start:end], "", "},{", "{", "}", '"', ",", " ", "\\", "\ud800", '"v":1,', ',"new":1', "é"]
        )
        place = chance.randrange(len(text) + 1)
        text = text[:place] + piece + text[chance.choice([place, place + 1, end]) :]
    return text


def assignment_of(count: int, *, named: bool, again: bool) -> str:
    """Return an assignment as it is written, of so many VFs and perhaps the first of them once more."""
    entry = json.loads(golden("assignment")[1])["vfs"][0]
    del entry["name"]
    names_of = [{"name": f"r{index % 60}"} if named else {} for index in range(count)]
    vfs = [entry | {"pci": f"0000:3b:{index // 8:02x}.{index % 8}"} | names_of[index] for index in range(count)]
    return json.dumps(
        {"node": "n1", "uid": "8c2f", "v": 1, "vfs": vfs + vfs[:again]}, separators=(",", ":"), sort_keys=True
    )


def test_an_assignment_as_it_is_written_is_believed_as_any_other_is() -> None:
    """Its entries are remembered by their text, which admits and refuses nothing that the plain reader does not.

    A space in front leaves an assignment what it is, and has it read plainly. Most texts here are nearly what the
    scheduler writes: the two readers differ there if anywhere.
    """
    chance, quickly = random.Random(5), 0
    for _ in range(6_000):
        count = chance.choice([0, 1, 1, 2, 2, 3, 61, 64, 65])
        whole = assignment_of(count, named=chance.random() < 0.3, again=chance.random() < 0.1)
        uid, node = chance.choice([("8c2f", "n1")] * 8 + [("8c2f", "n2"), ("", "n1"), ('8c2f","x":"', "n1")])
        text = mangled(whole.replace("8c2f", chance.choice(["8c2f", uid])), chance)

        def read(text: str, uid: str = uid, node: str = node) -> object:
            return verified_assignment({names.ASSIGNMENT: text}, uid, node)

        assert outcome(read, text) == outcome(read, f" {text}"), text
        quickly += _read_canonical(text, uid, node) is not None
    assert quickly > 500, "the remembered entries were hardly used"


def test_an_inventory_that_differs_by_its_boot_is_read_as_any_other_is() -> None:
    """The part after the boot id is cached by its text; values and errors are those of a reader without a cache."""
    chance = random.Random(6)
    for number in range(3_000):
        text = mangled(golden("inventory")[1].replace("5f1c", f"5f1c{number % 7}"), chance)
        assert outcome(read_inventory, text) == outcome(read_inventory, f" {text}"), text
