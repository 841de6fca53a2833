"""Read and restore the netdev settings that a pod can change and that a move to another namespace does not reset.

Each kind of setting is a text for the ledger entry; equal texts mean equal settings. ``xdp`` and ``tcx`` list the
programs, ``rules`` the ntuple rules, and each is empty if there are none. The others are ethtool's
(`cni.kernel.netdev.ethtool`), and attributes of the link itself.

Netlink cannot detach an XDP program of a BPF link (EBUSY in dev_xdp_attach of net/core/dev.c of Linux 6.12), and this
module does not detach tcx programs. Both are detached when the netdev is unregistered (dev_xdp_uninstall,
dev_tcx_uninstall), which happens when its driver is unbound.
"""

import errno
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import structlog

from cni.kernel import rtnetlink
from cni.kernel.netdev import bpf, ethtool
from mooring.nic.netlink_codec import LINK_HEADER, NESTED, number, pack_attributes, read_attributes, u32

_log = structlog.get_logger()
# The IFLA_* attributes that are single values, by their numbers in include/uapi/linux/if_link.h.
_ATTRIBUTES: Mapping[str, int] = MappingProxyType(
    {
        "link_mode": 17,
        "alias": 20,
        "group": 27,
        "gso_max_segs": 40,
        "gso_max_size": 41,
        "gro_max_size": 58,
        "gso_ipv4_max_size": 63,
        "gro_ipv4_max_size": 64,
    }
)
_XDP, _XDP_FD, _XDP_FLAGS, _DETACH = 43, 1, 3, 2**32 - 1
# For each mode: the attribute with the program's id (IFLA_XDP_{SKB,DRV,HW}_PROG_ID), and the flag (XDP_FLAGS_*_MODE).
_XDP_MODES: Mapping[str, tuple[int, int]] = MappingProxyType({"skb": (6, 2), "drv": (5, 4), "hw": (7, 8)})
_PROGRAMS = ("xdp", "tcx")
KINDS = frozenset((*_PROGRAMS, *_ATTRIBUTES, *ethtool.KINDS))
# The state of a netdev without programs; the only state to compare with if an earlier version wrote the entry.
NO_PROGRAMS: Mapping[str, str] = MappingProxyType(dict.fromkeys(_PROGRAMS, ""))


def read(index: int) -> dict[str, str]:
    """Return the settings of a link in this thread's namespace, by kind; raise OSError (ENODEV without the link)."""
    (body,) = rtnetlink.exchange(rtnetlink.GET_LINK, rtnetlink.link_header(index))
    attributes = dict(read_attributes(body[LINK_HEADER.size :]))
    state = {kind: attributes[attribute].hex() for kind, attribute in _ATTRIBUTES.items() if attribute in attributes}
    state["alias"] = attributes.get(_ATTRIBUTES["alias"], b"").rstrip(b"\0").hex()
    programs = dict(read_attributes(attributes.get(_XDP, b"")))
    program_ids = {mode: number(programs.get(attribute, b"")) for mode, (attribute, _) in _XDP_MODES.items()}
    state["xdp"] = " ".join(f"{mode}:{program}" for mode, program in program_ids.items() if program)
    return state | _read_tcx(index) | ethtool.read(index)


def _read_tcx(index: int) -> dict[str, str]:
    """Return a link's tcx programs; an empty dict if this process may not query them."""
    try:
        return {"tcx": " ".join(map(str, bpf.tcx_programs(index)))}
    except OSError as unread:
        if unread.errno == errno.ENODEV:
            raise
        return {}


def changed_kinds(original: Mapping[str, str], current: Mapping[str, str]) -> list[str]:
    """Return the kinds in which ``current`` differs from ``original``; kinds of other versions are skipped."""
    return [kind for kind in _in_order(original) if current.get(kind) != original[kind]]


def restore(index: int, original: Mapping[str, str], kinds: Sequence[str]) -> None:
    """Restore the given kinds as far as possible; callers read the result again. Raise OSError ENODEV."""
    for kind in kinds:
        try:
            _restore_kind(index, kind, original[kind])
        except (OSError, ValueError) as error:
            if isinstance(error, OSError) and error.errno == errno.ENODEV:
                raise
            _log.warning("netdev setting is not restored", link=index, setting=kind, reason=str(error))


def _restore_kind(index: int, kind: str, text: str) -> None:
    if kind == "xdp":
        if not text:
            _detach_xdp(index)
    elif kind in _ATTRIBUTES:
        _set(index, _ATTRIBUTES[kind], bytes.fromhex(text))
    elif kind in ethtool.KINDS:
        ethtool.write(index, kind, text)


def _detach_xdp(index: int) -> None:
    """Detach the XDP program of each mode; a program of a BPF link stays."""
    for mode in read(index)["xdp"].split():
        _, flag = _XDP_MODES[mode.partition(":")[0]]
        content = pack_attributes([(_XDP_FD, u32(_DETACH)), (_XDP_FLAGS, u32(flag))])
        _set(index, _XDP | NESTED, content)


def _set(index: int, attribute: int, value: bytes) -> None:
    rtnetlink.exchange(rtnetlink.SET_LINK, rtnetlink.link_header(index), [(attribute, value)])


def _in_order(original: Mapping[str, str]) -> list[str]:
    """Return the kinds in the order of their restore: programs first, because generic XDP turns features off.

    Source: generic_xdp_install in net/core/dev.c.
    """
    order = (*_PROGRAMS, *_ATTRIBUTES, *ethtool.KINDS)
    return [kind for kind in order if kind in original]
