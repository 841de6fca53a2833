"""GC: release every VF whose attachment the runtime no longer names, and pass GC on to the IPAM plugins.

The steps for one VF are those of DEL (`cni.cmd_del`, steps 2 to 5).
"""

from cni.spec.conf import Conf
from cni.spec.skel import BAD_CONFIG, TRY_AGAIN, Call, CniError
from cni.vf import ipam, own_ipam
from cni.vf.detach.detach import detach_vfs
from cni.vf.node import Node
from mooring.records.ledger import LedgerEntry


def run(node: Node, call: Call, conf: Conf) -> None:
    """Release every VF of this configuration whose attachment the runtime no longer names.

    IPAM plugins get the remaining interfaces by the names that they were called with, one for each VF.
    """
    if not conf.collects:
        return
    valid = conf.valid
    if valid is None:
        raise CniError(
            BAD_CONFIG,
            "configuration field 'cni.dev/valid-attachments' is missing: without it GC would release every VF",
        )
    failures: list[CniError] = []
    try:
        detach_vfs(node, node.ledger.entries(), lambda entry: _is_stale(entry, conf, valid))
    except CniError as error:
        failures.append(error)
    content = node.ledger.content()
    attachments = [
        {"containerID": entry.container, "ifname": entry.ipam.ifname}
        for entry in content.entries
        if entry.ipam is not None and _is_ours(entry, conf)
    ]
    read_errors = [error for error in content.unreadable.values() if isinstance(error, OSError)]
    if read_errors and not failures:
        failures.append(CniError(TRY_AGAIN, "some ledger entries cannot be read", "; ".join(map(str, read_errors))))
    # An IPAM plugin frees the addresses of every VF that is not listed, so it is not called with an incomplete list. A
    # file that is not an entry does not fail GC; `cni.server.vf_faults` reports it.
    for config in own_ipam.without_foreign_ipam(conf).every_ipam().values() if not content.unreadable else ():
        plugin_conf = conf.ipam_conf(config) | {"cniVersion": conf.version, "cni.dev/valid-attachments": attachments}
        try:
            ipam.delegate("GC", plugin_conf, call.path)
        except CniError as error:
            failures.append(error)
    if failures:
        raise CniError(failures[0].code, "; ".join(str(failure) for failure in failures))


def _is_ours(entry: LedgerEntry, conf: Conf) -> bool:
    """Return whether this configuration attached a VF; an entry that names no configuration counts as ours."""
    return entry.attachment is None or entry.attachment.name == conf.name


def _is_stale(entry: LedgerEntry, conf: Conf, valid: frozenset[tuple[str, str]]) -> bool:
    attachment = entry.attachment
    if attachment is None or attachment.name != conf.name:
        return False
    if conf.network is not None and attachment.network != conf.network:
        return False
    return (entry.container, attachment.ifname) not in valid
