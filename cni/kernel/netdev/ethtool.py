"""Read and restore the ethtool settings of a netdev, each kind as a text for the ledger entry; failures are OSErrors.

The ioctl takes a name, so the name is looked up by index just before it and again after it; on the host only udev
renames links. Numbers and structures are from include/uapi/linux/ethtool.h. A driver refuses unsupported operations
with EOPNOTSUPP (net/ethtool/ioctl.c). A move to another namespace resets none of these settings
(__dev_change_net_namespace in net/core/dev.c). Time stamping has its own ioctl (include/uapi/linux/net_tstamp.h).

Pause frames and FEC are missing on purpose: they belong to the port, and a rebind of the VF would not reset them. VFs
of iavf and hns3 cannot set them (iavf_ethtool_ops, hns3vf_ethtool_ops), and mlx5 refuses pause to a function that is
not the vport group manager (mlx5e_ethtool_set_pauseparam).
"""

import ctypes
import errno
import fcntl
import hashlib
import socket
import struct
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

_SIOCETHTOOL, _SIOCSHWTSTAMP, _SIOCGHWTSTAMP = 0x8946, 0x89B0, 0x89B1
# hwtstamp_config: flags, and which frames are time-stamped on sending and on receiving.
_TIME_STAMPS = struct.Struct("=3I")
_IFREQ = struct.Struct("=16sQ16x")
_U32 = struct.Struct("=I")
# Kinds whose structure is written as it was read: the get and set commands, and the size of the structure in bytes
# (ethtool_value, ethtool_ringparam, ethtool_channels, ethtool_coalesce).
_PLAIN: Mapping[str, tuple[int, int, int]] = MappingProxyType(
    {
        "private_flags": (0x27, 0x28, 8),
        "message_level": (0x07, 0x08, 8),
        "rings": (0x10, 0x11, 36),
        "channels": (0x3C, 0x3D, 36),
        "coalesce": (0x0E, 0x0F, 92),
    }
)
_GET_FEATURES, _SET_FEATURES = 0x3A, 0x3B
# ethtool_get_features_block: available, requested, active, never_changed. Kernels have fewer than _MOST_WORDS blocks.
_FEATURES, _MOST_WORDS = struct.Struct("=4I"), 8
_GET_RSS, _SET_RSS = 0x46, 0x47
# ethtool_rxfh: command, context, number of entries, key size, hash function, transformation.
_RSS = struct.Struct("=4IBB6x")
_GET_HASH, _SET_HASH, _COUNT_RULES, _GET_RULE, _ALL_RULES, _DELETE_RULE = 0x29, 0x2A, 0x2E, 0x2F, 0x30, 0x31
# ethtool_rxnfc: command, flow type, data; the rule, of which the last field is its location; count; locations.
_RULES_SIZE, _DATA, _RULE, _LOCATION, _COUNT, _LOCATIONS = 192, 8, 16, 176, 184, 188
# TCP_V4_FLOW, UDP_V4_FLOW, TCP_V6_FLOW, UDP_V6_FLOW: each has its own RSS hash fields.
_FLOWS = (1, 2, 5, 6)
_EMPTY, _MOST_RULES = "", 256
# More than any driver has: mlx5 16 (MLX5E_MAX_NUM_RSS), bnxt 33 (BNXT_MAX_ETH_RSS_CTX).
_MOST_CONTEXTS = 64
# ethtool_per_queue_op: command, the command for each queue, a bit for each queue; then a structure for each.
_PER_QUEUE, _MASK_BITS, _MOST_QUEUES = 0x4B, 4096, 256
# Words of ethtool_coalesce: use_adaptive_{rx,tx}_coalesce, and then {rx,tx}_coalesce_usecs and max_coalesced_frames.
_ADAPTIVE_WORDS: Mapping[int, tuple[int, int]] = MappingProxyType({10: (1, 2), 11: (5, 6)})
# ETHTOOL_RX_COPYBREAK, ETHTOOL_TX_COPYBREAK, ETHTOOL_TX_COPYBREAK_BUF_SIZE; their type is ETHTOOL_TUNABLE_U32.
_GET_TUNABLE, _SET_TUNABLE, _TUNABLES, _TUNABLE_U32 = 0x48, 0x49, (1, 2, 4), 3
_GET_COALESCE, _SET_COALESCE, _COALESCE_SIZE = _PLAIN["coalesce"]


def read(index: int) -> dict[str, str]:
    """Return the readable settings of a netdev, by kind; ``rules`` (ntuple) is empty without rules."""
    settings = {}
    for kind, (read_kind, _) in _KINDS.items():
        try:
            settings[kind] = read_kind(index)
        except OSError as unread:
            if unread.errno == errno.ENODEV:
                raise
    return settings


def write(index: int, kind: str, text: str) -> None:
    """Restore one kind from its text. RSS gets the driver's default table; rules can only be removed."""
    _KINDS[kind][1](index, text)


def _call(index: int, request: bytes | bytearray) -> bytes:
    """Make one ethtool call for a netdev, and return the structure that the kernel wrote."""
    return _ioctl(index, _SIOCETHTOOL, request)


def _ioctl(index: int, number: int, request: bytes | bytearray) -> bytes:
    buffer = ctypes.create_string_buffer(bytes(request), len(request))
    name = socket.if_indextoname(index).encode(errors="surrogateescape")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as any_socket:
        fcntl.ioctl(any_socket, number, _IFREQ.pack(name, ctypes.addressof(buffer)))
    if socket.if_indextoname(index).encode(errors="surrogateescape") != name:
        raise OSError(errno.ENODEV, f"link {index} was renamed during the call")
    return buffer.raw


def _plain(kind: str) -> tuple[Callable[[int], str], Callable[[int, str], None]]:
    get, put, size = _PLAIN[kind]

    def read_structure(index: int) -> str:
        return _call(index, _U32.pack(get).ljust(size, b"\0"))[_U32.size :].hex()

    def write_structure(index: int, text: str) -> None:
        _call(index, _U32.pack(put) + bytes.fromhex(text))

    return read_structure, write_structure


def _feature_words(index: int) -> list[tuple[int, int]]:
    """Return (changeable, requested) features, one pair of bit masks for each 32-bit word."""
    request = struct.pack("=II", _GET_FEATURES, _MOST_WORDS).ljust(8 + _MOST_WORDS * _FEATURES.size, b"\0")
    answer = _call(index, request)
    (words,) = _U32.unpack_from(answer, 4)
    blocks = (_FEATURES.unpack_from(answer, 8 + number * _FEATURES.size) for number in range(min(words, _MOST_WORDS)))
    return [(available, requested) for available, requested, _, _ in blocks]


def _read_features(index: int) -> str:
    return "".join(f"{available & requested:08x}" for available, requested in _feature_words(index))


def _write_features(index: int, text: str) -> None:
    words = _feature_words(index)
    masks = [int(text[start : start + 8], 16) for start in range(0, len(text), 8)]
    blocks = b"".join(struct.pack("=II", available, mask) for (available, _), mask in zip(words, masks, strict=True))
    _call(index, struct.pack("=II", _SET_FEATURES, len(words)) + blocks)


def _read_rss(index: int, context: int = 0) -> str:
    """Return hash function, transformation, and a digest of table and key, which together have some kilobytes."""
    _, _, entries, key, *_ = _RSS.unpack(_call(index, _RSS.pack(_GET_RSS, context, 0, 0, 0, 0)))
    request = _RSS.pack(_GET_RSS, context, entries, key, 0, 0).ljust(_RSS.size + 4 * entries + key, b"\0")
    answer = _call(index, request)
    *_, function, transformation = _RSS.unpack_from(answer)
    return f"{function:02x}{transformation:02x}{_digest(answer[_RSS.size :])}"


def _write_rss(index: int, text: str) -> None:
    """Reset the table with a size of 0 (ethtool_set_rxfh); a changed key stays."""
    _call(index, _RSS.pack(_SET_RSS, 0, 0, 0, int(text[:2], 16), int(text[2:4], 16)))


def _contexts(index: int) -> Iterator[int]:
    """Yield the additional RSS contexts; the kernel numbers them by the lowest free number (ethtool_set_rxfh)."""
    for context in range(1, _MOST_CONTEXTS + 1):
        try:
            _call(index, _RSS.pack(_GET_RSS, context, 0, 0, 0, 0))
        except OSError as refusal:
            # EOPNOTSUPP: no contexts at all. EINVAL: a number beyond the driver's, as in mlx5 before Linux 6.11.
            if refusal.errno in (errno.EOPNOTSUPP, errno.EINVAL):
                return
            if refusal.errno != errno.ENOENT:
                raise
        else:
            yield context


def _read_contexts(index: int) -> str:
    """Return the numbers of the RSS contexts, and a digest of their settings."""
    contexts = {str(context): _read_rss(index, context) for context in _contexts(index)}
    return f"{' '.join(contexts)} {_digest(''.join(contexts.values()).encode())}" if contexts else _EMPTY


def _write_contexts(index: int, text: str) -> None:
    """Remove all RSS contexts if there were none; others cannot be recreated. A table of size 0 removes a context."""
    if text != _EMPTY:
        raise OSError(errno.EOPNOTSUPP, "RSS contexts cannot be recreated")
    for context in list(_contexts(index)):
        _call(index, _RSS.pack(_SET_RSS, context, 0, 0, 0, 0))


def _read_time_stamps(index: int) -> str:
    return _ioctl(index, _SIOCGHWTSTAMP, _TIME_STAMPS.pack(0, 0, 0)).hex()


def _write_time_stamps(index: int, text: str) -> None:
    _ioctl(index, _SIOCSHWTSTAMP, bytes.fromhex(text))


def _read_queues(index: int) -> str:
    """Return a digest of the coalescing settings of all queues, empty if all queues are equal.

    A closed mlx5 netdev has no queues, and the queues that it gets when opened are equal (mlx5e_close_channels,
    mlx5e_open_rq). So a pod's settings do not survive the move, which closes the netdev. Values that the kernel adapts
    by itself change all the time (net_dim_get_rx_moderation), and are ignored.
    """
    values = tuple(_clear_adapted_words(coalesce) for coalesce in _queues(index))
    return f"{len(values)} {_digest(b''.join(values))}" if len(set(values)) > 1 else _EMPTY


def _clear_adapted_words(coalesce: bytes) -> bytes:
    words = list(struct.unpack(f"={len(coalesce) // 4}I", coalesce))
    for switch, numbers in _ADAPTIVE_WORDS.items():
        if words[switch]:
            for number in numbers:
                words[number] = 0
    return struct.pack(f"={len(words)}I", *words)


def _queues(index: int) -> Iterator[bytes]:
    """Yield the coalescing settings of each queue, up to the first queue number that the driver refuses (EINVAL)."""
    for queue in range(_MOST_QUEUES):
        words = (1 << queue % 32 if number == queue // 32 else 0 for number in range(_MASK_BITS // 32))
        request = struct.pack(f"=II{_MASK_BITS // 32}I", _PER_QUEUE, _GET_COALESCE, *words)
        try:
            yield _call(index, request.ljust(len(request) + _COALESCE_SIZE, b"\0"))[len(request) :]
        except OSError as refusal:
            if refusal.errno == errno.EINVAL:
                return
            raise


def _write_queues(index: int, _text: str) -> None:
    """Give every queue the coalescing settings of the netdev, which are restored before."""
    _call(index, _U32.pack(_SET_COALESCE) + _call(index, _U32.pack(_GET_COALESCE).ljust(_COALESCE_SIZE, b"\0"))[4:])


def _tunable(index: int, number: int) -> str:
    request = struct.pack("=5I", _GET_TUNABLE, number, _TUNABLE_U32, _U32.size, 0)
    try:
        return f"{_U32.unpack_from(_call(index, request), 16)[0]:x}"
    except OSError as refusal:
        if refusal.errno == errno.ENODEV:
            raise
        return "-"


def _read_tunables(index: int) -> str:
    return " ".join(_tunable(index, number) for number in _TUNABLES)


def _write_tunables(index: int, text: str) -> None:
    for number, value in zip(_TUNABLES, text.split(), strict=True):
        if value not in ("-", _tunable(index, number)):
            _call(index, struct.pack("=5I", _SET_TUNABLE, number, _TUNABLE_U32, _U32.size, int(value, 16)))


def _flow(command: int, flow: int, data: int = 0) -> bytes:
    return struct.pack("=IIQ", command, flow, data).ljust(_RULES_SIZE, b"\0")


def _hash_fields(index: int, flow: int) -> str:
    try:
        return f"{struct.unpack_from('=Q', _call(index, _flow(_GET_HASH, flow)), _DATA)[0]:x}"
    except OSError as refusal:
        if refusal.errno == errno.ENODEV:
            raise
        return "-"


def _read_hash(index: int) -> str:
    return " ".join(_hash_fields(index, flow) for flow in _FLOWS)


def _write_hash(index: int, text: str) -> None:
    for flow, value in zip(_FLOWS, text.split(), strict=True):
        if value not in ("-", _hash_fields(index, flow)):
            _call(index, _flow(_SET_HASH, flow, int(value, 16)))


def _locations(index: int) -> Iterator[int]:
    (count,) = _U32.unpack_from(_call(index, _flow(_COUNT_RULES, 0)), _COUNT)
    if not count:
        return
    request = bytearray(_flow(_ALL_RULES, 0).ljust(_LOCATIONS + 4 * count, b"\0"))
    _U32.pack_into(request, _COUNT, count)
    answer = _call(index, request)
    (count,) = _U32.unpack_from(answer, _COUNT)
    yield from (_U32.unpack_from(answer, _LOCATIONS + 4 * number)[0] for number in range(count))


def _at(command: int, location: int) -> bytes:
    request = bytearray(_flow(command, 0))
    _U32.pack_into(request, _LOCATION, location)
    return bytes(request)


def _read_rules(index: int) -> str:
    locations = sorted(_locations(index))
    if not locations:
        return _EMPTY
    if len(locations) > _MOST_RULES:
        return f"{len(locations)} rules"
    rules = b"".join(_call(index, _at(_GET_RULE, location))[_RULE:_COUNT] for location in locations)
    return f"{len(locations)} {_digest(rules)}"


def _write_rules(index: int, text: str) -> None:
    """Remove all rules if there were none; others cannot be recreated."""
    if text != _EMPTY:
        raise OSError(errno.EOPNOTSUPP, "ntuple rules cannot be recreated")
    for location in list(_locations(index))[:_MOST_RULES]:
        _call(index, _at(_DELETE_RULE, location))


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:32]


# In the order of their restore: rules refer to queues and RSS contexts, channels limit the RSS table, and settings of
# the netdev come before those of its queues.
_KINDS: Mapping[str, tuple[Callable[[int], str], Callable[[int, str], None]]] = MappingProxyType(
    {
        "rules": (_read_rules, _write_rules),
        "rss_contexts": (_read_contexts, _write_contexts),
        "features": (_read_features, _write_features),
        **{kind: _plain(kind) for kind in _PLAIN},
        "queue_coalesce": (_read_queues, _write_queues),
        "rss": (_read_rss, _write_rss),
        "rss_fields": (_read_hash, _write_hash),
        "tunables": (_read_tunables, _write_tunables),
        "time_stamps": (_read_time_stamps, _write_time_stamps),
    }
)
KINDS = tuple(_KINDS)
