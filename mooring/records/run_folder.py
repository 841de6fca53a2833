"""What lies where below the run folder (``/run/mooring``), which each boot begins empty, and who may read it.

The folder is root's, with the sockets. What the advertiser needs has folders of its own there, so that its pod mounts
those alone: `mooring-cni serve` makes them.

    version/<program>             each program's version, but the advertiser's
    init/ready, init/preparing/   by mooring-advertiser init: done in this boot; the PFs at work, by PCI address
    init/result.json              by it too: what became of the offer (`mooring.records.handed_offer`)
    init/bound/<pci>/             by udev: PFs whose driver was bound since `init` began last
    extract/                      what the advertiser reads of the records (`mooring.records.extract`)
    advertiser/                   what the advertiser writes: version, ports.json, rates/, rates-listed
"""

VERSIONS = "version"
READY, PREPARING = "init/ready", "init/preparing"
# The folder and name are those of 79-mooring-init.rules and mooring-init.path, which mooring-node installs.
BOUND = "init/bound"
ADVERTISER = "advertiser"
ADVERTISER_VERSION = f"{ADVERTISER}/version"
# The group that owns extract and advertiser, and the user and group as which the advertiser serves in a pod.
READERS = 65532
