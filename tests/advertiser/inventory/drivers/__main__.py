"""List, from a kernel's source, each driver that sets anything of its VFs, beside the RDMA driver of the same NIC.

    python -m tests.advertiser.inventory.drivers TREE > tests/advertiser/inventory/drivers/linux-VERSION.txt

One line a driver, by the name of its module: the RDMA drivers whose Kconfig entry needs it, and for each operation
``ndo_set_vf_*`` (``include/linux/netdevice.h``) and ``ndo_get_vf_stats`` the function that the driver has for it. A
driver that an RDMA driver needs is listed without any too. The last line has the RDMA drivers that need none. Whether
an RDMA driver makes devices for VFs is in no table of the kernel: `tests.advertiser.inventory.test_drivers` names the
place in the source for each.
"""

import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

_NET, _RDMA, _IPOIB = "drivers/net/ethernet", "drivers/infiniband/hw", "drivers/infiniband/ulp/ipoib"
_OPERATION = re.compile(r"^\s*\.ndo_(set_vf_\w+|get_vf_stats)\s*=\s*(\w+)", re.MULTILINE)
_MODULE = re.compile(r"^obj-\$\(CONFIG_(\w+)\)\s*[+:]?=(.*)$", re.MULTILINE)
_SYMBOL = re.compile(r"^config (\w+)$|^\s+(?:depends on|select) (.*)$", re.MULTILINE)


def main() -> None:
    tree = Path(sys.argv[1])
    rdma = dict(_rdma_drivers(tree))
    drivers = dict(_pf_drivers(tree))
    for module, symbols in _net_modules(tree):
        if any(symbols & needs for needs in rdma.values()) and not any(symbols & set(other) for _, other in drivers):
            drivers[(module, tuple(symbols))] = {}
    print(f"# python -m tests.advertiser.inventory.drivers, of Linux {_version(tree)}")
    needed: set[str] = set()
    for (module, built_by), operations in sorted(drivers.items()):
        beside = sorted(name for name, needs in rdma.items() if needs & set(built_by))
        needed.update(beside)
        print(module, f"rdma={','.join(beside) or '-'}", *(f"{name}={operations[name]}" for name in sorted(operations)))
    print("-", f"rdma={','.join(sorted(rdma.keys() - needed))}")


def _version(tree: Path) -> str:
    makefile = (tree / "Makefile").read_text()
    parts = (re.search(rf"^{name} = (\d+)$", makefile, re.MULTILINE) for name in ("VERSION", "PATCHLEVEL", "SUBLEVEL"))
    return ".".join(part[1] for part in parts if part)


def _pf_drivers(tree: Path) -> Mapping[tuple[str, tuple[str, ...]], Mapping[str, str]]:
    """Return the functions of each module that has any, by the module and the symbols that its folder is built by."""
    found: defaultdict[tuple[str, tuple[str, ...]], dict[str, str]] = defaultdict(dict)
    sources = [path for folder in (_NET, _IPOIB) for path in sorted((tree / folder).rglob("*.c"))]
    for path in sources:
        operations = dict(_OPERATION.findall(path.read_text(errors="replace")))
        if any(name.startswith("set_vf_") for name in operations):
            module, makefile = _module_of(path)
            symbols = sorted({symbol for symbol, _ in _MODULE.findall(makefile)})
            found[(module, tuple(symbols))] |= operations
    return found


def _module_of(source: Path) -> tuple[str, str]:
    """Return the module that has a source file, and the Makefile that says so: in its folder or above."""
    for folder in (source.parent, source.parent.parent):
        makefile = folder / "Makefile"
        text = makefile.read_text().replace("\\\n", " ") if makefile.is_file() else ""
        item = re.escape(str(source.relative_to(folder).with_suffix(".o")))
        listed = re.search(rf"^([\w-]+?)-(?:y|objs|\$\(CONFIG_\w+\))\s*[+:]?=.*?(?<![\w/]){item}\b", text, re.MULTILINE)
        if listed:
            return listed[1], text
        if re.search(rf"^obj-\S+\s*[+:]?=.*?(?<![\w/]){item}\b", text, re.MULTILINE):
            return source.stem, text
    raise SystemExit(f"{source}: no Makefile beside it or above says which module it is of")


def _net_modules(tree: Path) -> Iterator[tuple[str, set[str]]]:
    """Yield the modules of all network drivers, each with the symbol that it is built by."""
    for makefile in sorted((tree / "drivers/net").rglob("Makefile")):
        for symbol, objects in _MODULE.findall(makefile.read_text()):
            for item in re.findall(r"([\w-]+)\.o", objects):
                yield item, {symbol}


def _rdma_drivers(tree: Path) -> Iterator[tuple[str, frozenset[str]]]:
    """Yield each RDMA driver by the name of its module, with the symbols that its Kconfig entry needs."""
    for folder in sorted(path for path in (tree / _RDMA).iterdir() if path.is_dir()):
        needs: defaultdict[str, set[str]] = defaultdict(set)
        entry = ""
        for name, words in _SYMBOL.findall((folder / "Kconfig").read_text()):
            entry = name or entry
            needs[entry].update(re.findall(r"[A-Z]\w+", words))
        for symbol, objects in _MODULE.findall((folder / "Makefile").read_text()):
            for item in re.findall(r"([\w-]+)\.o", objects):
                yield item, frozenset(needs[symbol])


if __name__ == "__main__":
    main()
