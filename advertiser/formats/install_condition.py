"""Format the node condition `InstallFailed`: how far the cluster's own installation of this node is.

It is derived from the file that `mooring-node fleet` writes on the host (`mooring.records.node_install`). A node that
is installed by hand has no such file, and no condition.
"""

from collections.abc import Mapping

from advertiser.formats.node_condition import LONGEST, ConditionState
from mooring.records.node_install import NodeInstall, Phase

TYPE = "mooring.dev/InstallFailed"
_REASONS: Mapping[Phase, tuple[str, str]] = {
    "installed": ("False", "Installed"),
    "removed": ("False", "Removed"),
    "failed": ("True", "InstallFailed"),
    "waiting": ("Unknown", "WaitsForTurn"),
    "working": ("Unknown", "Installing"),
}


def condition_of(found: NodeInstall) -> ConditionState:
    """Return the condition for the file; its message begins with the release."""
    status, reason = _REASONS[found.phase]
    return ConditionState(status, reason, ": ".join(filter(None, (found.release, found.why)))[:LONGEST])
