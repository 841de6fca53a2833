"""Check what the runtime requests for an attachment (capabilities `mac` and `ips`) against the assignment."""

from collections.abc import Sequence

from cni.spec.conf import Conf
from cni.spec.skel import BAD_CONFIG, REFUSAL, Call, CniError
from mooring.annotations.assignment import AssignedVf


def check_capabilities(call: Call, conf: Conf, vfs: Sequence[AssignedVf]) -> None:
    """Raise CniError 100 for a MAC that was not assigned, 7 or 100 for addresses that cannot be one interface's.

    The capabilities apply to the first VF of a call. Mooring names the interfaces of the others.
    """
    if conf.mac is not None and conf.mac != vfs[0].settings.mac:
        assignment_text = f"has {vfs[0].settings.mac!r}" if vfs[0].settings.mac is not None else "has none"
        raise CniError(
            REFUSAL, f"the runtime requests mac {conf.mac!r}, but the assignment of vf {vfs[0].pci} {assignment_text}"
        )
    if not conf.ips and not call.args.get("IP"):
        return
    if len(vfs) > 1:
        raise CniError(
            BAD_CONFIG, f"the runtime requests addresses for one interface, but this call has {len(vfs)} VFs"
        )
    if vfs[0].netdev is False:
        raise CniError(
            REFUSAL, f"the runtime requests addresses, but the pod requests vf {vfs[0].pci} without a netdev"
        )
    if conf.network_of(vfs[0].network).ipam is None:
        raise CniError(BAD_CONFIG, f"the runtime requests addresses, but network {vfs[0].network!r} has no ipam")
