"""What a browser gets for a change: the items that differ, and nothing for a report that differs only in its time."""

from cli.plugin.page.changes import changes, is_news

POD = {"uid": "1", "namespace": "default", "name": "a", "node": ""}
OTHER = {"uid": "2", "namespace": "default", "name": "b", "node": "n1"}


def report(**fields: object) -> dict[str, object]:
    return {"taken_at": "t1", "pods": [POD, OTHER], "nodes": [], "checks": [], "server": "s", **fields}


def test_only_what_differs_is_sent() -> None:
    """An item is changed, one goes and one comes; the others stay in the browser."""
    bound, third = {**POD, "node": "n2"}, {**OTHER, "uid": "3"}
    made = changes(report(), report(pods=[bound, third], server="other"))
    assert made == {"set": {"server": "other"}, "lists": {"pods": {"put": [bound, third], "drop": ["2"]}}}


def test_a_list_that_becomes_known_is_sent_whole() -> None:
    """Without the right to list pods they are null."""
    assert changes(report(pods=None), report())["set"] == {"pods": [POD, OTHER]}
    assert changes(report(), report(pods=None))["set"] == {"pods": None}


def test_two_pods_with_one_gpu_are_two_items() -> None:
    gpus = [{"node": "n1", "pci": "0000:1b:00.0", "held": {"pod": name}} for name in ("default/a", "default/b")]
    made = changes({"gpus": gpus}, {"gpus": gpus[:1]})
    assert made["lists"] == {"gpus": {"put": [], "drop": ["n1/0000:1b:00.0/default/b"]}}


def test_two_groups_of_one_name_are_sent_whole() -> None:
    """A Job that was deleted and made again has two groups until the old pods have gone: by name they are one."""
    old: dict[str, object] = {"namespace": "default", "name": "train", "source": "controller", "bound": 2}
    new = {**old, "bound": 0}
    both, after = {"groups": [old, new]}, {"groups": [new]}
    assert changes({"groups": [old]}, both) == {"set": both, "lists": {}}
    assert not is_news(changes(both, {"groups": [dict(old), dict(new)]}), both)
    assert changes(both, after) == {"set": after, "lists": {}}


def test_time_alone_is_no_news() -> None:
    """A leader renews its Lease all the time, and a check says how long ago."""
    checks = [{"check": "scheduler", "state": "ok", "text": "renewed 1 s ago"}]
    old = report(checks=checks)
    later = report(taken_at="t2", checks=[{**checks[0], "text": "renewed 3 s ago"}])
    assert not is_news(changes(old, later), old)
    failing = report(checks=[{**checks[0], "state": "error"}])
    assert is_news(changes(old, failing), old)
