"""The node's part of the offer: what `init` leaves for ADD."""

import pytest

from mooring.errors import RecordError
from mooring.node_offer import PfOffer, dump_node_offer, read_node_offer

PCI = "0000:04:00.0"


def test_what_init_writes_is_what_add_reads() -> None:
    """A PF about which the offer says nothing is listed too."""
    pfs = {
        PCI: PfOffer(default_share_mbps=500, repair_node_guid=False, rebind_after_privileged=True),
        "0000:04:00.1": PfOffer(),
    }
    assert read_node_offer(dump_node_offer(pfs)) == pfs


def test_a_field_of_a_later_version_is_ignored() -> None:
    """`init` is upgraded with the image, mooring-cni with the host."""
    assert read_node_offer(f'{{"v":1,"pfs":{{"{PCI}":{{"later":true}}}},"also":1}}') == {PCI: PfOffer()}


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("{", "offer.json"),
        ('{"v":1}', "field 'pfs' is missing"),
        ('{"v":1,"pfs":{"eth0":{}}}', "'eth0'"),
        (f'{{"v":1,"pfs":{{"{PCI}":{{"default_share_mbps":"1"}}}}}}', "default_share_mbps"),
    ],
)
def test_a_file_that_is_not_inits_is_refused_by_its_place(text: str, place: str) -> None:
    """A share that nobody decided is never applied."""
    with pytest.raises(RecordError) as refused:
        read_node_offer(text)
    assert place in str(refused.value)
