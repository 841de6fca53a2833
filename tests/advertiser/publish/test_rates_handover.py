"""The advertiser as a process hands changed rates to the CNI server, and publishes what that says is in force."""

import json
import shutil
from collections.abc import Mapping
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import aiohttp

from advertiser.formats.vf_events import refused_rates
from cni.server.rates_states import RatesStates, take_over
from devcluster.apiserver.serve import ApiServer
from mooring.annotations.inventory import CNI, read_inventory
from mooring.annotations.rates import PodRates, RatesInForce, VfRates, dump_rates, dump_rates_in_force
from mooring.names import INVENTORY, RATES, RATES_IN_FORCE, RATES_SIGNATURE
from mooring.records.rates_exchange import (
    HANDED_OVER,
    RATES_LIST,
    STATES,
    HandedOverRates,
    RatesState,
    Refusal,
    dump_handed_over,
    read_handed_over,
)
from mooring.records.run_folder import VERSIONS
from tests.advertiser.held_pod import VF1, bind_pod
from tests.advertiser.program import advertising
from tests.support.folders import texts
from tests.support.polling import eventually

NODE, POD = "/api/v1/nodes/n1", "/api/v1/namespaces/default/pods/train"
EVENTS = "/api/v1/namespaces/default/events"
MERGE = {"Content-Type": "application/merge-patch+json"}


async def get(server: ApiServer, path: str) -> Any:
    async with aiohttp.ClientSession(server.url) as session, session.get(path) as answer:
        return await answer.json()


async def annotate(server: ApiServer, path: str, values: Mapping[str, str | None]) -> None:
    body = json.dumps({"metadata": {"annotations": values}})
    async with aiohttp.ClientSession(server.url, headers=MERGE) as session, session.patch(path, data=body) as answer:
        assert answer.status == 200


async def published(server: ApiServer, expected: Mapping[str, int] | None) -> None:
    """Return once the node carries this; None is a node without the annotation."""

    async def carries() -> bool:
        text = (await get(server, NODE))["metadata"].get("annotations", {}).get(RATES_IN_FORCE)
        return (None if text is None else json.loads(text)) == (
            None if expected is None else {"v": 1, "pods": expected}
        )

    await eventually(carries)


def files(folder: Path) -> dict[str, HandedOverRates]:
    return {stem: read_handed_over(text, stem) for stem, text in texts(folder / "run" / HANDED_OVER).items()}


async def handed_over(folder: Path, expected: Mapping[str, HandedOverRates]) -> None:
    async def are_there() -> bool:
        return files(folder) == expected

    await eventually(are_there)


async def test_rates_go_to_the_server_and_what_is_in_force_to_the_node(server: ApiServer, tmp_path: Path) -> None:
    """Both annotations' exact text; the generation once the server says so, and nothing of a pod that is gone."""
    uid = await bind_pod(server, tmp_path)
    text = dump_rates(PodRates(uid, "n1", 2, (VfRates(5000),), (9000,)))
    async with advertising(tmp_path, "--rates", "--resync", "0.2") as advertiser:
        await advertiser.scanned()
        await published(server, None)
        RatesStates().write(tmp_path / "run", {})
        await published(server, {})
        await annotate(server, POD, {RATES: text})
        await handed_over(tmp_path, {uid: HandedOverRates(text)})
        await annotate(server, POD, {RATES_SIGNATURE: "who?"})
        await handed_over(tmp_path, {uid: HandedOverRates(text, "who?")})
        shown = RatesStates()
        shown.write(tmp_path / "run", {uid: RatesState("default/train", 2, in_force=False)})
        await advertiser.scanned()
        await published(server, {})
        shown.write(tmp_path / "run", {uid: RatesState("default/train", 2, in_force=True)})
        await published(server, {uid: 2})
        at_once = {"gracePeriodSeconds": "0"}
        async with aiohttp.ClientSession(server.url) as session, session.delete(POD, params=at_once) as answer:
            assert answer.status == 200
        await handed_over(tmp_path, {})
        await published(server, {})


async def test_what_was_published_stands_while_the_server_says_nothing(server: ApiServer, tmp_path: Path) -> None:
    """As after a boot: the scheduler would reserve again what it has given to others. A stale file goes meanwhile."""
    uid = await bind_pod(server, tmp_path)
    await annotate(server, POD, {RATES: "what the scheduler wrote"})
    await annotate(server, NODE, {RATES_IN_FORCE: json.dumps({"v": 1, "pods": {uid: 7}})})
    (tmp_path / "run" / HANDED_OVER).mkdir()
    (tmp_path / "run" / HANDED_OVER / "gone.json").write_text(dump_handed_over(HandedOverRates("a pod that is gone")))
    async with advertising(tmp_path, "--rates", "--resync", "0.2") as advertiser:
        await handed_over(tmp_path, {uid: HandedOverRates("what the scheduler wrote")})
        await advertiser.scanned()
        await published(server, {uid: 7})


async def says_rates(server: ApiServer) -> bool:
    """Return whether the inventory says that rates change; then what is in force is what the server says."""
    text = (await get(server, NODE))["metadata"].get("annotations", {}).get(INVENTORY)
    return text is not None and read_inventory(text).rates


async def test_a_node_says_that_it_changes_rates_once_it_has_said_what_is_in_force(
    server: ApiServer, tmp_path: Path
) -> None:
    """What an older advertiser has left in force, and which its node may have undone, counts at no moment."""
    await annotate(server, NODE, {RATES_IN_FORCE: '{"v":1,"pods":{"u1":7}}'})
    async with advertising(tmp_path, "--rates", "--resync", "0.2") as advertiser:
        await advertiser.scanned()
        assert not await says_rates(server)
        await published(server, {"u1": 7})
        RatesStates().write(tmp_path / "run", {})
        await eventually(partial(says_rates, server))
        await published(server, {})


async def test_a_node_says_so_also_where_nothing_is_to_be_changed_in_what_is_in_force(
    server: ApiServer, tmp_path: Path
) -> None:
    """No write of it need come."""
    await annotate(server, NODE, {RATES_IN_FORCE: dump_rates_in_force(RatesInForce())})
    RatesStates().write(tmp_path / "run", {})
    async with advertising(tmp_path, "--rates", "--resync", "60"):
        await eventually(partial(says_rates, server))


async def test_a_node_says_so_once_everything_that_it_has_recorded_is_in_force(
    server: ApiServer, tmp_path: Path
) -> None:
    """An older mooring-cni may have given a VF the assignment's rates, which no generation reserves any more."""
    uid = await bind_pod(server, tmp_path)
    await annotate(server, POD, {RATES: dump_rates(PodRates(uid, "n1", 2, (VfRates(),), (0,)))})
    shown = RatesStates()
    shown.write(tmp_path / "run", {uid: RatesState("default/train", 2, False), "gone": RatesState("ns/p", 1, False)})
    async with advertising(tmp_path, "--rates", "--resync", "0.2") as advertiser:
        await published(server, {})
        await advertiser.scanned()
        assert not await says_rates(server)
        shown.write(tmp_path / "run", {uid: RatesState("default/train", 2, True)})
        await eventually(partial(says_rates, server))
        await published(server, {uid: 2})
        shown.write(tmp_path / "run", {uid: RatesState("default/train", 3, False)})
        await advertiser.scanned()
        assert await says_rates(server)


async def test_an_advertiser_that_starts_again_goes_on_to_say_so(server: ApiServer, tmp_path: Path) -> None:
    """Also after a boot, while the server has said nothing; one without the flag does not."""
    RatesStates().write(tmp_path / "run", {})
    async with advertising(tmp_path, "--rates", "--resync", "0.2"):
        await eventually(partial(says_rates, server))
    shutil.rmtree(tmp_path / "run" / STATES)
    async with advertising(tmp_path, "--rates", "--resync", "0.2") as advertiser:
        await advertiser.scanned()
        assert await says_rates(server)
    async with advertising(tmp_path, "--resync", "0.2") as advertiser:
        await advertiser.scanned()
        assert not await says_rates(server)


async def test_a_node_whose_server_is_of_an_older_version_does_not_say_so(server: ApiServer, tmp_path: Path) -> None:
    """It sets the assignment's rates, and leaves what a newer one has said."""
    run = tmp_path / "run"
    take_over(run)
    (run / VERSIONS / CNI).write_text(version("mooring"))
    RatesStates().write(run, {})
    async with advertising(tmp_path, "--rates", "--resync", "0.2") as advertiser:
        await eventually(partial(says_rates, server))
        (run / VERSIONS / CNI).write_text("older")
        await advertiser.scanned()
        assert not await says_rates(server)
        take_over(run)
        (run / VERSIONS / CNI).write_text(version("mooring"))
        await advertiser.scanned()
        assert not await says_rates(server)
        RatesStates().write(run, {})
        await eventually(partial(says_rates, server))


async def test_without_the_flag_a_node_does_not_say_that_it_changes_rates(server: ApiServer, tmp_path: Path) -> None:
    """What an advertiser with it has left is taken back, on the node's object and in the run folder."""
    await annotate(server, NODE, {RATES_IN_FORCE: '{"v":1,"pods":{}}'})
    (tmp_path / "run" / HANDED_OVER).mkdir()
    (tmp_path / "run" / HANDED_OVER / "u1.json").write_text("{}")
    async with advertising(tmp_path, "--resync", "0.2"):
        await published(server, None)
        assert files(tmp_path) == {}


async def test_the_owner_is_told_what_a_nic_refuses(server: ApiServer, tmp_path: Path) -> None:
    """One Event for a generation, which names the VF's PF and the kernel's reason."""
    uid = await bind_pod(server, tmp_path)
    why = "pf 'enp4s0f0' refuses min_tx_rate 5000 for vf 1: EOPNOTSUPP (Operation not supported)"
    await annotate(server, POD, {RATES: "what the scheduler wrote"})
    RatesStates().write(tmp_path / "run", {uid: RatesState("default/train", 2, False, Refusal(VF1, why))})

    async def told() -> Any:
        return [each for each in (await get(server, EVENTS))["items"] if each["reason"] == "VfRatesRefused"]

    async with advertising(tmp_path, "--rates", "--resync", "0.2") as advertiser:
        (event,) = await eventually(told)
        assert event["involvedObject"]["uid"] == uid
        assert event["message"] == (
            f"rates of generation 2 are not in force: {why}; mooring-cni retries, "
            "and until then the larger of the old and new rates is reserved"
        )
        await advertiser.scanned()
        assert len(await told()) == 1


async def test_nobody_is_told_what_a_nic_refuses_to_a_pod_that_leaves(server: ApiServer, tmp_path: Path) -> None:
    """Its owner has deleted it, and the VF on its way back takes no rates any more; nor of a pod that is gone."""
    uid = await bind_pod(server, tmp_path)
    await annotate(server, POD, {RATES: "what the scheduler wrote"})
    async with aiohttp.ClientSession(server.url) as session, session.delete(POD) as answer:
        assert answer.status == 200
    assert "deletionTimestamp" in (await get(server, POD))["metadata"]
    states = {one: RatesState("default/train", 2, False, Refusal(VF1, "why")) for one in (uid, "gone")}
    RatesStates().write(tmp_path / "run", states)
    async with advertising(tmp_path, "--rates", "--resync", "0.2") as advertiser:
        await handed_over(tmp_path, {uid: HandedOverRates("what the scheduler wrote")})
        await advertiser.scanned()
        assert [each for each in (await get(server, EVENTS))["items"] if each["reason"] == "VfRatesRefused"] == []


async def there(path: Path) -> bool:
    return path.exists()


async def test_that_all_pods_are_listed_is_said_after_their_files(server: ApiServer, tmp_path: Path) -> None:
    """The server forgets a pod without a file; an advertiser that hands nothing over takes that word back."""
    uid = await bind_pod(server, tmp_path)
    await annotate(server, POD, {RATES: "what the scheduler wrote"})
    listed = tmp_path / "run" / RATES_LIST
    async with advertising(tmp_path, "--rates", "--resync", "0.2"):
        await handed_over(tmp_path, {uid: HandedOverRates("what the scheduler wrote")})
        await eventually(partial(there, listed))
        await annotate(server, POD, {RATES: None})
        await annotate(server, POD, {RATES_SIGNATURE: "x"})
        await handed_over(tmp_path, {uid: HandedOverRates("what the scheduler wrote")})
    async with advertising(tmp_path, "--resync", "0.2") as advertiser:
        await advertiser.scanned()
        assert not listed.exists()


def test_each_generation_has_an_event_of_its_own() -> None:
    """By its name, which the API server takes once."""
    states = {f"u{one}": RatesState("ns/p", one, False, Refusal(VF1, "why")) for one in (1, 2)}
    names = {each.event("n1", "")["metadata"]["name"] for each in refused_rates(states)}  # type: ignore[index]
    assert names == {"p.vf-rates.1.u1.0000-04-00.3", "p.vf-rates.2.u2.0000-04-00.3"}
