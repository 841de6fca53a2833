"""Single frames and datagrams between two pods on Ethernet: what a VLAN and the spoof check let pass."""

import socket

from cli.node.hardware.pods import IFNAME
from cli.node.hardware.traffic.endpoints import Endpoint
from cni.kernel import netns

_WAIT_S = 1.0
# An EtherType for local experiments (IEEE 802), and a MAC that no VF of the test has.
_EXPERIMENTAL = 0x88B5
_FOREIGN = bytes.fromhex("026d6f0000ff")
_FRAMES = 20


def udp_passes(sender: Endpoint, receiver: Endpoint) -> bool:
    """Return whether a datagram from one pod reaches the other one."""
    with netns.run_in(receiver.pod.netns, lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as inbound:
        inbound.bind((str(receiver.address), 0))
        inbound.settimeout(_WAIT_S)
        to = inbound.getsockname()
        with netns.run_in(sender.pod.netns, lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as outbound:
            for _ in range(_FRAMES):
                outbound.sendto(b"mooring", to)
        try:
            return inbound.recv(64) == b"mooring"
        except TimeoutError:
            return False


def foreign_frames_pass(sender: Endpoint, receiver: Endpoint) -> bool:
    """Return whether broadcast frames with another source MAC than the sender's reach the receiver."""
    frame = b"\xff" * 6 + _FOREIGN + _EXPERIMENTAL.to_bytes(2, "big") + b"mooring".ljust(46, b"\0")

    def opened() -> socket.socket:
        raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_EXPERIMENTAL))
        raw.bind((IFNAME, _EXPERIMENTAL))
        return raw

    with netns.run_in(receiver.pod.netns, opened) as inbound, netns.run_in(sender.pod.netns, opened) as outbound:
        inbound.settimeout(_WAIT_S)
        for _ in range(_FRAMES):
            outbound.send(frame)
        try:
            return inbound.recv(2048)[6:12] == _FOREIGN
        except TimeoutError:
            return False
