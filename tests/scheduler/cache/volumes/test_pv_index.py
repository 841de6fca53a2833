"""Which node labels find a free volume."""

from scheduler.cache.volumes.storage_index import PvIndex
from scheduler.kube.storage_objects import PersistentVolume
from tests.scheduler.volume_store import HOST, Store, on

CLAIM = {"namespace": "default", "name": "c"}


def _disk(store: Store, node: str, claim: dict[str, str] | None = None) -> PersistentVolume:
    return store.volume(f"disk-of-{node}", where=on(HOST, node), claim=claim)


def test_a_label_finds_a_free_volume_until_each_is_reserved_or_assumed(store: Store) -> None:
    """A volume may be assumed for several pods that share its claim; labels find those of their own class only."""
    index = PvIndex([_disk(store, "n1"), _disk(store, "n2"), _disk(store, "n3", CLAIM)])

    def free_nodes(storage_class: str = "late") -> list[str]:
        return [node for node in ("n1", "n2", "n3") if index.has_free(storage_class, (HOST, node))]

    assert free_nodes() == ["n1", "n2"]
    assert not free_nodes("another")
    assert not index.has_free("late", None)
    index.count_plan("disk-of-n1", 1)
    index.count_plan("disk-of-n1", 1)
    index.count_plan("disk-of-n1", -1)
    index.put(_disk(store, "n1"))
    assert free_nodes() == ["n2"]
    index.count_plan("disk-of-n1", -1)
    assert free_nodes() == ["n1", "n2"]
    index.put(_disk(store, "n2", CLAIM))
    index.remove("disk-of-n1")
    assert not free_nodes()
    index.check({})
