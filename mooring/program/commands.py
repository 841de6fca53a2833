"""The commands that pip installs: each starts its program, or prints in one line which extra is missing.

`pip install mooring` installs all commands, but only the dependencies of `mooring-node`.
"""

import sys
from collections.abc import Callable
from importlib import import_module

_PACKAGES = frozenset({"mooring", "scheduler", "advertiser", "cri_shim", "cni", "cli"})


def scheduler() -> int:
    """Run `mooring-scheduler`."""
    return _run("mooring-scheduler", "scheduler", "scheduler")


def advertiser() -> int:
    """Run `mooring-advertiser`."""
    return _run("mooring-advertiser", "advertiser", "advertiser")


def cri_shim() -> int:
    """Run `mooring-cri-shim`."""
    return _run("mooring-cri-shim", "cri_shim", "cri-shim")


def cni() -> int:
    """Run `mooring-cni`."""
    return _run("mooring-cni", "cni", "cni")


def kubectl() -> int:
    """Run `kubectl mooring`."""
    return _run("kubectl mooring", "cli", "cli")


def kubectl_complete() -> int:
    """Run `kubectl_complete-mooring`, which kubectl calls to complete `kubectl mooring`."""
    return _run("kubectl_complete-mooring", "cli", "cli", "complete")


def _run(program: str, package: str, extra: str, function: str = "main") -> int:
    try:
        main: Callable[[], int] = getattr(import_module(f"{package}.__main__"), function)
        # Within the try, because some libraries are imported only when they are used.
        return main()
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] in _PACKAGES:
            raise
        rule = f"the extra is not installed: pip install 'mooring[{extra}]'"
        print(f"{program}: no Python module {error.name!r} in {sys.prefix}; {rule}", file=sys.stderr)
        return 1
