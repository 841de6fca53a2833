"""Lists: pages, selectors, versions. Against devcluster's server and a real one."""

from typing import Any

import pytest

from devcluster.apiserver.serve import ApiServer


def names(answer: Any) -> list[str]:
    """Return the names in a list."""
    return [item["metadata"]["name"] for item in answer["items"]]


async def test_a_limited_list_is_continued_page_by_page(api: Any) -> None:
    """Pages hold at most `limit` items in order, all of one version; the last has no token."""
    for number in range(7):
        await api.pod(f"p{number}")
    seen, versions, token = [], set(), ""
    for expected_left in (4, 1, None):
        page = await api.ok("GET", f"{api.pods}?limit=3&continue={token}")
        assert expected_left == page["metadata"].get("remainingItemCount")
        seen += names(page)
        versions.add(page["metadata"]["resourceVersion"])
        token = page["metadata"].get("continue", "")
    assert [f"p{number}" for number in range(7)] == seen
    assert len(versions) == 1
    assert token == ""


async def test_later_pages_show_the_collection_as_it_was_at_the_first(api: Any) -> None:
    """What is created, changed or deleted between two pages does not show."""
    for name in ("a", "b", "c"):
        await api.pod(name)
    first = await api.ok("GET", f"{api.pods}?limit=1")
    await api.pod("bb")
    await api.ok("DELETE", f"{api.pods}/c")
    rest = await api.ok("GET", f"{api.pods}?limit=5&continue={first['metadata']['continue']}")
    assert names(rest) == ["b", "c"]
    assert rest["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]


async def test_an_expired_token_is_answered_with_410(dev: Any, devserver: ApiServer) -> None:
    """After compaction a token is 410 Expired; the client must list again."""
    for name in ("a", "b"):
        await dev.pod(name)
    page = await dev.ok("GET", f"{dev.pods}?limit=1")
    devserver.compact()
    code, answer = await dev.call("GET", f"{dev.pods}?limit=1&continue={page['metadata']['continue']}")
    assert (code, answer["reason"]) == (410, "Expired")


async def test_a_broken_token_is_a_bad_request(api: Any) -> None:
    """A token that no server made is answered with 400."""
    code, answer = await api.call("GET", f"{api.pods}?limit=1&continue=%21%21")
    assert (code, answer["reason"]) == (400, "BadRequest")


async def test_a_list_carries_the_version_of_the_newest_write_and_its_items_no_kind(api: Any) -> None:
    """A watch from a list's version misses nothing; items of built-in kinds carry neither kind nor apiVersion."""
    made = await api.pod("p")
    answer = await api.ok("GET", api.pods)
    assert (answer["kind"], answer["apiVersion"]) == ("PodList", "v1")
    assert int(answer["metadata"]["resourceVersion"]) >= int(made["metadata"]["resourceVersion"])
    assert "kind" not in answer["items"][0]
    assert "apiVersion" not in answer["items"][0]


async def test_a_version_that_does_not_exist_yet_is_a_timeout(api: Any) -> None:
    """The answer is 504 with cause ResourceVersionTooLarge."""
    code, answer = await api.call("GET", f"{api.pods}?resourceVersion=99999999&resourceVersionMatch=NotOlderThan")
    assert code == 504
    assert answer["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"


SELECTIONS = [
    ("labelSelector=tier%3Da", ["p1", "p3"]),
    ("labelSelector=tier%3D%3Da,odd", ["p1", "p3"]),
    ("labelSelector=tier!%3Da", ["p2", "p4"]),
    ("labelSelector=tier+in+(a,b)", ["p1", "p2", "p3"]),
    ("labelSelector=tier+notin+(a,b)", ["p4"]),
    ("labelSelector=odd", ["p1", "p3"]),
    ("labelSelector=!odd,tier+in+(b)", ["p2"]),
    ("labelSelector=rank%3E2", ["p3"]),
    ("fieldSelector=metadata.name%3Dp2", ["p2"]),
    ("fieldSelector=metadata.name!%3Dp2", ["p1", "p3", "p4"]),
    ("fieldSelector=spec.nodeName%3Dn9", ["p4"]),
    ("fieldSelector=spec.nodeName%3D,spec.schedulerName%3Dnobody", ["p1", "p2", "p3"]),
    ("fieldSelector=status.phase%3DPending,metadata.name%3Dp1&labelSelector=odd", ["p1"]),
    ("fieldSelector=status.phase!%3DPending", []),
]


@pytest.mark.parametrize(("query", "expected"), SELECTIONS)
async def test_selectors_take_what_they_name(api: Any, query: str, expected: list[str]) -> None:
    """Label and field selectors work alone and together."""
    await api.pod("p1", labels={"tier": "a", "odd": "y", "rank": "1"})
    await api.pod("p2", labels={"tier": "b", "rank": "2"})
    await api.pod("p3", labels={"tier": "a", "odd": "y", "rank": "3"})
    await api.pod("p4")
    assert (await api.bind("p4", "n9"))[0] == 201
    assert names(await api.ok("GET", f"{api.pods}?{query}")) == expected


@pytest.mark.parametrize("query", ["fieldSelector=spec.nonsense%3D1", "labelSelector=a+in+(b"])
async def test_a_selector_that_cannot_be_read_is_a_bad_request(api: Any, query: str) -> None:
    """Unknown fields and broken grammar are 400, never an unfiltered list."""
    code, answer = await api.call("GET", f"{api.pods}?{query}")
    assert (code, answer["reason"]) == (400, "BadRequest")


async def test_a_list_over_all_namespaces_shows_each(api: Any) -> None:
    """A list without a namespace in its path has the objects of all namespaces."""
    await api.pod("p")
    answer = await api.ok("GET", f"/api/v1/pods?fieldSelector=metadata.namespace%3D{api.namespace}")
    assert names(answer) == ["p"]


async def test_a_table_has_a_row_for_each_object(api: Any) -> None:
    """`kubectl get` requests tables: columns, cells, and each row's metadata."""
    await api.pod("p")
    headers = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
    async with api.session.get(api.url + api.pods, headers=headers, ssl=api.tls) as response:
        table = await response.json()
    assert table["kind"] == "Table"
    assert [column["name"] for column in table["columnDefinitions"]][:5] == [
        "Name",
        "Ready",
        "Status",
        "Restarts",
        "Age",
    ]
    (row,) = table["rows"]
    assert row["cells"][:4] == ["p", "0/1", "Pending", 0] or row["cells"][:4] == ["p", "0/1", "Pending", "0"]
    assert row["object"]["metadata"]["name"] == "p"
