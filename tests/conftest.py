"""Which tiers this machine offers: a test whose means are missing is skipped and listed with the reason.

With ``--no-skips`` (CI) a skipped test is a failure, but for those marked ``apiserver``. Loops that break every call
take a part of the calls, which the seed chooses (``tests/support/seeds.py``), and with ``--long`` all of them. So it is
with the tests marked ``other_nic``: of each module's an ordinary run takes a part. Of one marked ``one_nic`` it takes
mlx5 Ethernet, or the NIC that ``-k`` picks; the report's first lines name it. Of the versions of containerd in
MOORING_RUNTIMES it takes one for each file, and of the tests marked ``slow`` one in eight. So it is with the seeds of a
test that has many.
"""

import os
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from tempfile import NamedTemporaryFile
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, settings

from bench.host.lab import MISSING, find_lab
from bench.served import apiservers
from devcluster.without_mooring.root import kubectl_is_too_old
from release import cache as release_cache
from tests.support.seeds import Part, chosen_seed
from tests.support.timings import Timings, tier_of

# Their assertions are explained when they fail; the first import may be that of any folder.
pytest.register_assert_rewrite(
    "tests.scheduler.group_scene",
    "tests.scheduler.scene",
)

Lab = Callable[..., "subprocess.CompletedProcess[str]"]
_FETCH_RUNTIME = Path(__file__).parents[1] / "devcluster/runtime/fetch"
_FETCH_RUNTIME_S = 300


def _missing_commands(*commands: str) -> str | None:
    missing = [command for command in commands if shutil.which(command) is None]
    return f"not installed: {', '.join(missing)}" if missing else None


def _not_root() -> str | None:
    return None if os.geteuid() == 0 else "not root"


@cache
def _lab() -> Path | None:
    return find_lab(os.environ)


def _no_lab() -> str | None:
    return MISSING if _lab() is None else None


def _no_api_server() -> str | None:
    named = os.environ.get("KUBECONFIG") or os.environ.get("KUBEBUILDER_ASSETS")
    return None if named else "neither KUBECONFIG nor KUBEBUILDER_ASSETS names a real kube-apiserver"


def _no_containerd() -> str | None:
    return _not_root() or _missing_commands("containerd", "runc", "ctr", "busybox")


def _repository_in_lab() -> str:
    """Return the commands that let the lab see this repository: the lab has folders of its own over a few of ours."""
    root = Path(__file__).parent.parent
    hidden = str(root).startswith(("/tmp/", "/run/", "/mnt/", "/var/lib/", "/dev/"))
    return (
        f"mkdir -p '{root}' && mount -t hostfs none '{root}' -o '{root}'\ncd '{root}'\n" if hidden else f"cd '{root}'\n"
    )


def _no_helm() -> str | None:
    return None if release_cache.helm(os.environ) else "no helm: release/fetch helm"


def _no_wheels() -> str | None:
    folders = {"wheels": release_cache.wheels(os.environ), "runtime": release_cache.packages(os.environ)}
    missing = [name for name, folder in folders.items() if not (folder.is_dir() and any(folder.iterdir()))]
    return f"not in the cache: {', '.join(f'release/fetch {name}' for name in missing)}" if missing else None


NEEDS: dict[str, Callable[[], str | None]] = {
    "root": _not_root,
    "lab": _no_lab,
    "containerd": _no_containerd,
    "systemd": lambda: _missing_commands("/lib/systemd/systemd", "systemctl"),
    "udev": lambda: _missing_commands("/lib/systemd/systemd-udevd", "udevadm", "/lib/udev/rdma_rename"),
    "kubectl": lambda: _missing_commands("kubectl"),
    "recent_kubectl": cache(kubectl_is_too_old),
    "helm": _no_helm,
    "browser": lambda: _missing_commands("chromium"),
    "sshd": lambda: _missing_commands("sshd", "ssh", "ssh-keygen"),
    "wheels": _no_wheels,
    "apiserver": _no_api_server,
}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--no-skips", action="store_true", help="a skipped test is a failure, except tests marked apiserver"
    )
    parser.addoption("--long", action="store_true", help="many more seeds of the simulations, every call of the loops")
    parser.addoption("--beyond-quick", default="", metavar="FOLDERS", help="leave out what --quick runs there")
    parser.addoption("--seed", type=int, help="which part of the loops is run (default: by the commit's id)")


def _part(config: pytest.Config) -> Part:
    seed = chosen_seed(config.getoption("--seed"), os.environ, config.rootpath)
    return Part(seed, whole=config.getoption("--long"))


# Before Hypothesis reads its options.
@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    # How long an example takes depends on the machine. The seed repeats a failure, so no database is needed.
    checks = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
    settings.register_profile("mooring", deadline=None, database=None, suppress_health_check=checks)
    settings.load_profile("mooring")
    if config.option.hypothesis_seed is None:
        config.option.hypothesis_seed = str(_part(config).seed)
    config.pluginmanager.register(Timings(), "timings")


def pytest_report_header(config: pytest.Config) -> str:
    part = _part(config)
    return f"seed: {part.seed} (loops break {'every call' if part.whole else 'a part of the calls'}; --seed repeats)"


@pytest.fixture(scope="session")
def part(request: pytest.FixtureRequest) -> Part:
    """Return which calls the loops break in this run."""
    return _part(request.config)


# Marks of the tests that `run test --quick` leaves out.
_NOT_QUICK = ("root", "apiserver", "slow")
_SLOW_ONE_IN = 8
# Of a test with at least so many seeds an ordinary run takes one in four.
_MANY_SEEDS, _SEEDS_ONE_IN = 8, 4
_NO_PARAMETERS = SimpleNamespace(params={})
_PICKED = pytest.StashKey[list[pytest.Item]]()


def _has_one_nic(item: pytest.Item) -> bool:
    return item.get_closest_marker("one_nic") is not None


def _same_but_for_the_nic(items: Iterable[pytest.Item]) -> dict[str, list[pytest.Item]]:
    """Return the tests marked ``one_nic`` by what they have in common."""
    found: defaultdict[str, list[pytest.Item]] = defaultdict(list)
    for item in filter(_has_one_nic, items):
        assert isinstance(item, pytest.Function)
        parameters = sorted((name, str(value)) for name, value in item.callspec.params.items() if name != "nic")
        found[f"one nic {item.path.name} {item.originalname} {parameters}"].append(item)
    return found


def _on_mlx5(group: Iterable[pytest.Item]) -> list[pytest.Item]:
    return [item for item in group if isinstance(item, pytest.Function) and str(item.callspec.params["nic"]) == "mlx5"]


def _other_runtimes(items: Iterable[pytest.Item], part: Part) -> list[pytest.Item]:
    """Return the tests on the versions of containerd that an ordinary run leaves out: each file has one of them."""
    of_file: defaultdict[Path, dict[str, list[pytest.Item]]] = defaultdict(lambda: defaultdict(list))
    for item in items:
        version = getattr(item, "callspec", _NO_PARAMETERS).params.get("programs")
        if version is not None:
            of_file[item.path][version].append(item)
    left_out = []
    for path, versions in of_file.items():
        taken = list(versions) if part.whole else [part.random(f"containerd {path.name}").choice(list(versions))]
        left_out += [item for version, ones in versions.items() if version not in taken for item in ones]
    return left_out


def _other_seeds(items: Iterable[pytest.Item], part: Part) -> list[pytest.Item]:
    """Return the cases that an ordinary run leaves out of the tests with many seeds."""
    of_test: defaultdict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        parameters = getattr(item, "callspec", _NO_PARAMETERS).params
        if "seed" in parameters:
            others = sorted((name, str(value)) for name, value in parameters.items() if name != "seed")
            of_test[f"seeds {item.nodeid.partition('[')[0]} {others}"].append(item)
    left_out = []
    for name, ones in of_test.items():
        if len(ones) >= _MANY_SEEDS:
            taken = set(part.of(ones, name, _SEEDS_ONE_IN))
            left_out += [item for item in ones if item not in taken]
    return left_out


def _quick_ones(items: Iterable[pytest.Item], config: pytest.Config) -> list[pytest.Item]:
    """Return the tests that `run test --quick` runs in the folders of ``--beyond-quick``."""
    folders = {config.rootpath / folder for folder in config.getoption("--beyond-quick").split()}
    return [
        item
        for item in items
        if not folders.isdisjoint(item.path.parents) and not any(map(item.get_closest_marker, _NOT_QUICK))
    ]


def _slow_ones(items: Iterable[pytest.Item], part: Part) -> list[pytest.Item]:
    """Return the tests marked ``slow`` that an ordinary run leaves out: seven in eight of each tier."""
    of_tier: defaultdict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker("slow") is not None:
            of_tier[tier_of(item.keywords)].append(item)
    taken = {item for tier, ones in of_tier.items() for item in part.of(ones, f"slow {tier}", _SLOW_ONE_IN)}
    return [item for ones in of_tier.values() for item in ones if item not in taken]


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect what an ordinary run leaves out: of other NICs, versions of containerd and seeds, and slow tests.

    A test that is named alone is run.
    """
    of_module: defaultdict[Path, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker("other_nic") is not None:
            of_module[item.path].append(item)
    part = _part(config)
    taken = {item for path, others in of_module.items() for item in part.of(others, f"nic {path.name}")}
    same = _same_but_for_the_nic(items)
    taken |= {item for group in same.values() for item in (group if part.whole else _on_mlx5(group) or group[:1])}
    left_out = [item for group in (*of_module.values(), *same.values()) for item in group if item not in taken]
    left_out += [*_other_runtimes(items, part), *_other_seeds(items, part), *_quick_ones(items, config)]
    left_out = list(dict.fromkeys(left_out))
    config.stash[_PICKED] = [] if part.whole else [item for item in items if _has_one_nic(item) and item in taken]
    left_out += _slow_ones(_without(items, left_out), part)
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = _without(items, left_out)


def _without(items: Iterable[pytest.Item], left_out: Iterable[pytest.Item]) -> list[pytest.Item]:
    are_out = frozenset(left_out)
    return [item for item in items if item not in are_out]


def pytest_report_collectionfinish(config: pytest.Config) -> list[str]:
    return [f"one NIC of each: {item.nodeid}" for item in config.stash.get(_PICKED, [])]


def pytest_runtest_setup(item: pytest.Item) -> None:
    for marker, missing in NEEDS.items():
        if item.get_closest_marker(marker) is None or (reason := missing()) is None:
            continue
        text = f"tier {marker!r}: {reason}"
        if item.config.getoption("--no-skips") and marker != "apiserver":
            pytest.fail(text, pytrace=False)
        pytest.skip(text)


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    """Run a shell script inside the lab kernel; ``options`` are those of the lab's own ``run``."""

    def run(script: str, *options: str, timeout_s: float = 280) -> "subprocess.CompletedProcess[str]":
        with NamedTemporaryFile("w", suffix=".sh", dir=tmp_path, delete=False) as file:
            file.write(_repository_in_lab() + script)
        command = [str(_lab()), "-t", str(round(timeout_s) - 10), *options, file.name]
        return subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)

    return run


@pytest.fixture(scope="session")
def own_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Start a real kube-apiserver that tests may fill and empty; give a kubeconfig."""
    if "KUBEBUILDER_ASSETS" not in os.environ:
        pytest.skip("tier 'apiserver': KUBEBUILDER_ASSETS is not set, and the cluster of KUBECONFIG is not ours")
    with apiservers.real(Path(os.environ["KUBEBUILDER_ASSETS"]), tmp_path_factory.mktemp("apiserver")) as kubeconfig:
        yield kubeconfig


@pytest.fixture(scope="session", params=os.environ.get("MOORING_RUNTIMES", "installed").split())
def programs(request: pytest.FixtureRequest) -> Path | None:
    """Return the folder of a containerd and its runc, for each version in MOORING_RUNTIMES; None: the installed one."""
    if request.param == "installed":
        return None
    fetched = subprocess.run(
        [_FETCH_RUNTIME, request.param], stdout=subprocess.PIPE, text=True, check=True, timeout=_FETCH_RUNTIME_S
    )
    return Path(fetched.stdout.strip())
