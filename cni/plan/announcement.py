"""Build the frames that announce the MAC of an address to neighbours, whose caches may have another pod's MAC.

IPv4: an ARP announcement (RFC 5227, section 2.3: a request whose sender and target are the address). IPv6: an
unsolicited neighbour advertisement to all nodes with the override flag (RFC 4861, sections 4.4 and 7.2.6).
"""

import struct
from ipaddress import IPv6Address, ip_address

_BROADCAST = b"\xff" * 6
_ALL_NODES, _ALL_NODES_MAC = IPv6Address("ff02::1").packed, bytes.fromhex("333300000001")
_ETH_ARP, _ETH_IPV6, _ICMPV6 = 0x0806, 0x86DD, 58
_ADVERTISEMENT, _OVERRIDE, _TARGET_MAC = 136, 0x2000_0000, 2
# RFC 4861 requires this hop limit: a packet from beyond the link has a lower one.
_HOP_LIMIT = 255


def frame(mac: str, address: str) -> bytes:
    """Return the Ethernet frame that announces an address (without prefix length) at a MAC."""
    mac_bytes, ip = bytes.fromhex(mac.replace(":", "")), ip_address(address)
    return _arp(mac_bytes, ip.packed) if ip.version == 4 else _neighbour_advertisement(mac_bytes, ip.packed)


def _arp(mac: bytes, address: bytes) -> bytes:
    head = struct.pack("!6s6sH", _BROADCAST, mac, _ETH_ARP)
    return head + struct.pack("!HHBBH6s4s6s4s", 1, 0x0800, 6, 4, 1, mac, address, bytes(6), address)


def _neighbour_advertisement(mac: bytes, address: bytes) -> bytes:
    body = struct.pack("!I16sBB6s", _OVERRIDE, address, _TARGET_MAC, 1, mac)
    length = 4 + len(body)
    pseudo = address + _ALL_NODES + struct.pack("!II", length, _ICMPV6)
    checksum = _checksum(pseudo + struct.pack("!BBH", _ADVERTISEMENT, 0, 0) + body)
    packet = struct.pack("!IHBB16s16s", 6 << 28, length, _ICMPV6, _HOP_LIMIT, address, _ALL_NODES)
    head = struct.pack("!6s6sH", _ALL_NODES_MAC, mac, _ETH_IPV6)
    return head + packet + struct.pack("!BBH", _ADVERTISEMENT, 0, checksum) + body


def _checksum(data: bytes) -> int:
    """Return the one's complement sum of 16-bit words (RFC 1071); ``data`` has an even length."""
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF
