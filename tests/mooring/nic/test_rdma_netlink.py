"""NETLINK_RDMA by bytes: what is sent, and what a kernel (6.12, with rxe) was seen to answer."""

import os
import struct

import pytest

from mooring.nic import netlink_codec, rdma_netlink


def message(kind: int, body: bytes) -> bytes:
    return struct.pack("=IHHII", 16 + len(body), kind, 0, 1, 0) + body


def test_a_request_is_laid_out_as_the_kernel_reads_it() -> None:
    """struct nlmsghdr (client 5 << 10 | command, REQUEST | ACK), then each attribute padded to four bytes."""
    sent = rdma_netlink.request(rdma_netlink.SYS_SET, {rdma_netlink.SYS_ATTR_NETNS_MODE: b"\0"})
    assert sent == bytes.fromhex("18000000 0714 0500 01000000 000000000500 4200 00 000000".replace(" ", ""))


def test_a_dump_ends_by_itself_and_is_not_acknowledged() -> None:
    """The flags are REQUEST | ROOT | MATCH."""
    _, kind, flags, _, _ = struct.unpack_from("=IHHII", rdma_netlink.request(rdma_netlink.GET, {}, dump=True))
    assert (kind, flags) == (5 << 10 | 1, 0x301)


def test_a_device_is_moved_by_its_index_and_a_descriptor() -> None:
    """The attributes are RDMA_NLDEV_ATTR_DEV_INDEX and RDMA_NLDEV_NET_NS_FD, each a u32."""
    sent = rdma_netlink.request(
        rdma_netlink.SET, {rdma_netlink.DEV_INDEX: netlink_codec.u32(3), rdma_netlink.NET_NS_FD: netlink_codec.u32(9)}
    )
    assert list(netlink_codec.read_attributes(sent[16:])) == [(1, b"\3\0\0\0"), (68, b"\t\0\0\0")]


def test_an_answer_of_several_messages_is_read_to_its_end() -> None:
    """Two devices come, then DONE; nothing after the first datagram means that the answer goes on."""
    devices = [message(0x1401, struct.pack("=HHI", 8, 1, index)) for index in (0, 1)]
    done = message(3, bytes(4))
    assert netlink_codec.read_answer(devices[0]) == ([((1, bytes(4)),)], False)
    assert netlink_codec.read_answer(b"".join([*devices, done])) == ([((1, bytes(4)),), ((1, b"\1\0\0\0"),)], True)
    assert netlink_codec.read_answer(message(2, bytes(20))) == ([], True)


@pytest.mark.parametrize("kind", [2, 3])
def test_a_refusal_is_the_kernels_own_errno(kind: int) -> None:
    """struct nlmsgerr, or the end of a dump that failed on the way."""
    with pytest.raises(OSError, match=os.strerror(95)) as refused:
        netlink_codec.read_answer(message(kind, struct.pack("=i16x", -95)))
    assert refused.value.errno == 95


def test_garbage_is_never_read_past_its_end() -> None:
    """False lengths end the reading; none of them makes it loop for ever."""
    for length in range(5):
        assert len(list(netlink_codec.read_attributes(struct.pack("=HH", length, 1) + b"abcd"))) <= 2
    assert netlink_codec.read_answer(struct.pack("=IHHII", 0, 99, 0, 0, 0)) == ([()], False)
