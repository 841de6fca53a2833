"""Read a PF's counters of each VF: IFLA_VF_STATS of rtnetlink, in the namespace of the calling thread.

The attributes are from include/uapi/linux/if_link.h, the names from the SR-IOV metrics exporter (netlinkReader in its
collectors/sriovdev_readers.go). The kernel queries the driver about each VF, under RTNL.
"""

from collections.abc import Iterator, Mapping

from cni.kernel import rtnetlink
from cni.kernel.netlink import index_of
from mooring.nic.netlink_codec import LINK_HEADER, Attribute, attributes_at, number, read_attributes, u32

# IFLA_VF_STATS_*: multicast and broadcast count received packets.
_NAMES = {
    0: "rx_packets",
    1: "tx_packets",
    2: "rx_bytes",
    3: "tx_bytes",
    4: "rx_broadcast",
    5: "rx_multicast",
    7: "rx_dropped",
    8: "tx_dropped",
}
_NUM_VF, _VFINFO_LIST, _VF_INFO, _VF_STATS = 21, 22, 1, 8
# IFLA_EXT_MASK with RTEXT_FILTER_VF, which includes the statistics.
_WITH_VFS: Attribute = (29, u32(1))
# Room for 256 VFs of 1.2 kB, and the PF itself.
_MOST_BYTES = 1 << 19


def vf_statistics(pf: str) -> Mapping[int, Mapping[str, int]]:
    """Return a PF's counters of each VF, by VF index; empty without VFs or without the PF. Raise OSError."""
    index = index_of(pf)
    if index is None:
        return {}
    header = rtnetlink.link_header(index)
    (body,) = rtnetlink.exchange(rtnetlink.GET_LINK, header, [_WITH_VFS], most_bytes=_MOST_BYTES)
    return dict(_read_vfs(body[LINK_HEADER.size :]))


def _read_vfs(link: bytes) -> Iterator[tuple[int, Mapping[str, int]]]:
    """Yield index and counters of each VF in a link's attributes.

    With statistics a VF takes over a kilobyte. The attribute that lists the VFs has a length of 16 bits, which wraps
    near 54 VFs (nla_nest_end), but the message contains all VFs. So they are counted by the number of VFs before the
    list.
    """
    vf_count = 0
    for kind, begin, end in attributes_at(link):
        if kind == _NUM_VF:
            vf_count = number(link[begin:end])
        elif kind == _VFINFO_LIST:
            for vf, (attribute, first, last) in zip(range(vf_count), attributes_at(link, begin), strict=False):
                info = link[first:last]
                # Every other attribute of a VF starts with its index.
                if attribute != _VF_INFO or number(info[4:8]) != vf:
                    return
                statistics = dict(read_attributes(dict(read_attributes(info)).get(_VF_STATS, b"")))
                yield vf, {name: number(statistics[kind]) for kind, name in _NAMES.items() if kind in statistics}
            return
