"""The files below the run folder (``/run/mooring``), which is empty after a boot, and who can read them.

Root owns the folder, which also has the sockets. The advertiser's files are in separate folders, so that its pod mounts
only those; `mooring-cni serve` creates them.

    version/<program>             each program's version, except the advertiser's
    init/ready, init/preparing/   by mooring-advertiser init: done in this boot; PFs in preparation, by PCI address
    init/without-guid/<pci>       by init and mooring-cni: VFs that could not be given a GUID (`guid_failures`)
    init/result.json              by mooring-advertiser init: the result for the offer (`mooring.records.handed_offer`)
    init/bound/<pci>/             by udev: PFs whose driver was bound since the last start of `init`
    extract/                      extracts of the records for the advertiser (`mooring.records.extract`)
    advertiser/                   files that the advertiser writes: version, ports.json, rates/, rates-listed
"""

VERSIONS = "version"
READY, IN_PREPARATION, WITHOUT_GUID = "init/ready", "init/preparing", "init/without-guid"
# The same path is in 79-mooring-init.rules and mooring-init.path, which mooring-node installs.
BOUND_PFS = "init/bound"
ADVERTISER = "advertiser"
ADVERTISER_VERSION = f"{ADVERTISER}/version"
# The group of the folders extract and advertiser; in a pod the advertiser serves with this user and group id.
READERS = 65532
