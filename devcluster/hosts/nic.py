"""The parts of a simulated host, as values: its PFs, their VFs, and the names and addresses of each PCI function.

The default is one dual-port ConnectX-6 Dx (driver mlx5_core, legacy SR-IOV, RoCE); another NIC is another
`devcluster.hosts.personalities.personality.Personality`. On such a card the VFs follow all PFs in routing-id order.
VF 0 of the first of two PFs at 0000:04:00.0 is 0000:04:00.2. The second PF's VF 0 follows the last VF that the first PF
could have (its sriov_totalvfs).
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace

from devcluster.hosts.personalities.personality import Personality
from devcluster.hosts.personalities.registry import PERSONALITIES
from mooring.names import LinkType
from mooring.nic.pci import vf_address
from mooring.nic.vf_addresses import vf_guid


@dataclass(frozen=True, slots=True)
class Pf:
    """A PF: ``mbps`` is its line rate, ``offset`` and ``stride`` place its VFs, ``pcie`` are the bridges above it.

    ``nic`` names its personality; without one it is mlx5's of its ``link``.
    """

    name: str
    pci: str
    vfs: int
    total: int
    offset: int
    mbps: int = 100_000
    network: str = "rail0"
    link: LinkType = "ethernet"
    numa: int = 0
    pcie: tuple[str, ...] = ("0000:00:01.0", "0000:02:00.0")
    stride: int = 1
    refuse: tuple[str, ...] = ()
    nic: str | None = None

    @property
    def personality(self) -> Personality:
        """How its driver answers; raise KeyError for an unknown name."""
        return PERSONALITIES[self.nic or f"mlx5-{self.link}"]

    @property
    def vf0(self) -> str:
        return vf_address(self.pci, 1, self.offset)


@dataclass(frozen=True, slots=True)
class Function:
    """A PCI function, a PF (``vf`` is None) or a VF; ``number`` is the N of its mlx5_N (or the like) and uverbsN.

    ``pf_mac`` is the MAC of the PF.
    """

    pci: str
    pf: Pf
    vf: int | None
    number: int
    netdev: str
    mac: str
    pf_mac: str

    @property
    def rdma(self) -> str:
        return f"{self.pf.personality.rdma_prefix}{self.number}"

    @property
    def uverbs(self) -> str:
        return f"uverbs{self.number}"

    @property
    def has_rdma(self) -> bool:
        return self.vf is None or self.pf.personality.has_rdma

    @property
    def admin_guid(self) -> str | None:
        """The GUID that `init` gives a VF of an InfiniBand PF that has the setting, None for any other."""
        has_setting = type(self.pf.personality).set_vf_guid is not Personality.set_vf_guid
        own = self.pf_mac.replace(":", "")
        # The PF's own one, as `devcluster.hosts.netdevs.guid` makes it.
        return vf_guid(f"{own[:6]}0300{own[6:]}", self.vf) if self.vf is not None and has_setting else None

    @property
    def port(self) -> str:
        """The other end of a VF's veth: a port of the bridge that stands for the PF."""
        return f"{self.pf.name}_{self.vf}"


@dataclass(frozen=True, slots=True)
class Host:
    """A simulated host; ``number`` is unique among connected hosts: addresses derive from it.

    ``gpus`` is how many it has: `devcluster.hosts.gpus` describes them.
    """

    name: str
    number: int
    pfs: tuple[Pf, ...]
    gpus: int = 0

    def functions(self) -> Iterator[Function]:
        """Yield the PFs, then the VFs PF by PF: the order in which mlx5_N are numbered."""
        for index, pf in enumerate(self.pfs):
            yield Function(pf.pci, pf, None, index, pf.name, self._pf_mac(index), self._pf_mac(index))
        number = len(self.pfs)
        for index, pf in enumerate(self.pfs):
            for vf in range(pf.vfs):
                # mlx5 gives a VF a random, locally administered address; ours are the same at each start.
                mac = f"02:{self._tail}:{index:02x}:{vf >> 8:02x}:{vf & 0xFF:02x}"
                pci = vf_address(pf.vf0, pf.stride, vf)
                yield Function(pci, pf, vf, number, f"{pf.name}v{vf}", mac, self._pf_mac(index))
                number += 1

    def _pf_mac(self, index: int) -> str:
        return f"0c:42:a1:{self._tail}:{index:02x}"

    @property
    def _tail(self) -> str:
        return f"{self.number >> 8:02x}:{self.number & 0xFF:02x}"


def describe_host(
    name: str,
    number: int,
    *,
    pfs: int = 2,
    vfs: int = 8,
    total: int | None = None,
    mbps: int = 100_000,
    refuse: tuple[str, ...] = (),
    nics: Sequence[str] = (),
    gpus: int = 0,
) -> Host:
    """Describe a host with one card of ``pfs`` ports at 0000:04:00, PF i on network ``rail<i>``, ``vfs`` VFs each.

    ``nics`` names the PFs' personalities, repeated as often as needed; without any it is mlx5's on Ethernet.
    """
    most = vfs if total is None else total
    if most < vfs:
        raise ValueError(f"host {name!r}: {vfs} VFs exceed sriov_totalvfs {most}")
    if not 1 <= pfs <= 8:
        raise ValueError(f"host {name!r}: {pfs} PFs are not 1 to 8, the functions of one device")
    ports = (
        Pf(
            name=f"enp4s0f{index}",
            pci=f"0000:04:00.{index}",
            vfs=vfs,
            total=most,
            offset=pfs + index * (most - 1),
            mbps=mbps,
            network=f"rail{index}",
            refuse=refuse,
            nic=nics[index % len(nics)] if nics else None,
            link=PERSONALITIES[nics[index % len(nics)]].link if nics else "ethernet",
        )
        for index in range(pfs)
    )
    return Host(name, number, tuple(ports), gpus)


def dump_host(host: Host) -> str:
    return json.dumps(asdict(host), sort_keys=True, indent=1)


def load_host(text: str) -> Host:
    """Read a description that `dump_host` wrote."""
    document = json.loads(text)
    pfs = [Pf(**pf) for pf in document.pop("pfs")]
    return Host(**document, pfs=tuple(replace(pf, pcie=tuple(pf.pcie), refuse=tuple(pf.refuse)) for pf in pfs))
