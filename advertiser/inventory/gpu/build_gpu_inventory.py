"""Build the inventory of a host's GPUs: the properties of each, and why it cannot be used. Pure.

Values that no source reports stay unknown; nothing is guessed from a model's name. A GPU without a UUID or a CDI device
is out, because a container could not get exactly this GPU.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from advertiser.inventory.gpu.facts import GpuFacts, GpuFunction, KfdNode, NvidiaInformation, NvmlGpu
from advertiser.inventory.gpu.gpus_file import GpuEntry, entry_of
from advertiser.inventory.gpu.links import link_groups
from mooring.gpu.cdi import CdiDevice, Contradiction, choose, devices_of_gpus
from mooring.gpu.identity import amd_uuid, device_nodes, read_hexadecimal
from mooring.gpu.inventory import LONGEST_MODEL, LONGEST_WHY, MOST_GPUS, Gpu, GpuInventory, GpuOut, is_uuid

_DRIVERS = {"nvidia": "nvidia", "amd": "amdgpu"}
# Values of a GPU that is not partitioned; UNKNOWN is a GPU without partitions (amdgpu_gfx_compute_mode_desc).
_WHOLE = frozenset({"", "SPX", "UNKNOWN"})
_MIB = 1 << 20
_NO_CDI = "no CDI specification describes it"
# Xid errors that a process causes; the GPU itself stays usable. Source: NVIDIA's "XID Errors". NVIDIA's device plugin
# ignores the same errors in its health check.
XIDS_OF_APPLICATIONS = frozenset({13, 31, 43, 45, 68, 109})


@dataclass(frozen=True, slots=True)
class _Sources:
    """The facts about one GPU, by source."""

    function: GpuFunction
    entry: GpuEntry
    nvidia: NvidiaInformation | None
    kfd: KfdNode
    nvml: NvmlGpu
    cdi: CdiDevice | Contradiction | None
    exposed: str


def build_gpu_inventory(facts: GpuFacts, entries: Sequence[GpuEntry] = (), node: str = "") -> GpuInventory:
    """Return the inventory of ``node``, ordered by PCI address, with at most `MOST_GPUS` GPUs."""
    functions = sorted(facts.functions, key=lambda function: function.address)[:MOST_GPUS]
    in_cdi = devices_of_gpus(facts.cdi, {function.address: _nodes(function, facts.nvidia) for function in functions})
    sources = [
        _sources(facts, function, entry_of(entries, node, function.address), choose(in_cdi[function.address], None))
        for function in functions
    ]
    links = _links(facts, sources)
    duplicates = _shared_uuids(sources)
    gpus, out = list[Gpu](), list[GpuOut]()
    for source in sources:
        address, uuid = source.function.address, _uuid(source)
        why = next(_why_out(source, duplicates), "")
        if why or uuid is None:
            out.append(GpuOut(address, why[:LONGEST_WHY]))
        else:
            gpus.append(_gpu(source, uuid, links.get(address)))
    return GpuInventory(tuple(gpus), tuple(out))


def obstacles(facts: GpuFacts) -> dict[str, str]:
    """Return why GPUs could not be on offer even with a CDI specification, by PCI address; the others are absent."""
    sources = [_sources(facts, function, GpuEntry(), None) for function in facts.functions]
    whys = {
        source.function.address: next((why for why in _why_out(source, set()) if why != _NO_CDI), "")
        for source in sources
    }
    return {address: why for address, why in whys.items() if why}


def _nodes(function: GpuFunction, nvidia: Mapping[str, NvidiaInformation]) -> tuple[str, ...]:
    return device_nodes(function.vendor, function.drm, nvidia.get(function.address, NvidiaInformation()).minor)


def _sources(
    facts: GpuFacts, function: GpuFunction, entry: GpuEntry, cdi: CdiDevice | Contradiction | None
) -> _Sources:
    address = function.address
    nvml = (facts.nvml or {}).get(address, NvmlGpu())
    return _Sources(
        function, entry, facts.nvidia.get(address), facts.kfd.get(address, KfdNode()), nvml, cdi, facts.exposed
    )


def _gpu(one: _Sources, uuid: str, link: int | None) -> Gpu:
    function, entry = one.function, one.entry
    numa = _integer(function.numa_node)
    return Gpu(
        pci=function.address,
        uuid=uuid,
        vendor=function.vendor,
        model=_model(one),
        memory_mb=_memory_mb(one),
        # The kernel's -1 is "no node" (NUMA_NO_NODE).
        numa=entry.numa if numa is None or numa < 0 else numa,
        pcie=function.path or entry.pcie or (),
        link=link,
    )


def _model(source: _Sources) -> str | None:
    nvidia = source.nvidia.model if source.nvidia else None
    model = source.nvml.model or nvidia or source.function.product_name or source.entry.model
    return model[:LONGEST_MODEL] if model else None


def _memory_mb(source: _Sources) -> int | None:
    size = source.nvml.memory_bytes if source.nvml.memory_bytes is not None else _integer(source.function.vram)
    return size // _MIB if size else source.entry.memory_mb


def _uuid(source: _Sources) -> str | None:
    """Return the UUID in the form of the vendor's runtime; AMD's derives from the GPU's unique id."""
    amd = amd_uuid(read_hexadecimal(source.function.unique_id) or source.kfd.unique_id)
    nvidia = source.nvidia.uuid if source.nvidia else None
    return next((text for text in (source.nvml.uuid, nvidia, amd, source.entry.uuid) if text and is_uuid(text)), None)


def _shared_uuids(sources: Iterable[_Sources]) -> set[str]:
    """Return the UUIDs that several GPUs have, for example because the GPU file was copied from another node."""
    uuids, duplicates = set[str](), set[str]()
    for uuid in filter(None, map(_uuid, sources)):
        (duplicates if uuid in uuids else uuids).add(uuid)
    return duplicates


def _why_out(source: _Sources, duplicates: set[str]) -> Iterator[str]:
    """Yield every reason why a GPU is out, the most helpful first."""
    if source.entry.out is not None:
        yield source.entry.out or "the GPU file excludes it"
    if source.exposed:
        yield source.exposed
    function = source.function
    if function.driver is None:
        yield "no driver"
    elif function.driver != _DRIVERS[function.vendor]:
        yield f"bound to {function.driver}"
    yield from _why_cut(source)
    yield from _why_unhealthy(source.nvml)
    uuid = _uuid(source)
    if uuid is None:
        yield "its UUID is unknown"
    elif uuid in duplicates:
        yield f"another GPU has the UUID {uuid} too"
    if source.cdi is None:
        yield _NO_CDI
    elif isinstance(source.cdi, Contradiction):
        yield f"CDI devices {source.cdi.first} and {source.cdi.second} define it differently"


def _why_unhealthy(nvml: NvmlGpu) -> Iterator[str]:
    """Yield why a GPU does not work, as NVML reports."""
    if nvml.fabric:
        yield nvml.fabric
    if xids := sorted(nvml.xids - XIDS_OF_APPLICATIONS):
        yield f"Xid {', '.join(map(str, xids))} since the advertiser started"


def _why_cut(source: _Sources) -> Iterator[str]:
    """Yield why a GPU is not available as a whole."""
    if source.nvidia is not None and source.nvidia.excluded:
        yield "NVIDIA's driver excludes it"
    if source.nvml.mig or (source.nvidia is not None and source.nvidia.instances):
        yield "MIG is on"
    if (source.function.partition or "") not in _WHOLE:
        yield f"compute partition {source.function.partition}"


def _links(facts: GpuFacts, sources: Sequence[_Sources]) -> dict[str, int]:
    """Return the groups of linked GPUs; if no links are found, the groups in the operator's file."""
    if groups := link_groups(facts):
        return groups
    words = {source.function.address: source.entry.link for source in sources if source.entry.link is not None}
    numbers = {word: number for number, word in enumerate(dict.fromkeys(words.values()))}
    return {address: numbers[word] for address, word in words.items()}


def _integer(text: str | None) -> int | None:
    return int(text) if text is not None and text.removeprefix("-").isdecimal() and len(text) < 20 else None
