"""The lab's kernel is built only with the mlx5 drivers of Debian's package. Nothing is unpacked or compiled here.

Programs of the system that `devcluster/lab/build` runs are stand-ins: `tar` makes one file of each folder of the
drivers, and what goes wrong with them happens while `make` runs.
"""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

LAB = Path(__file__).parents[2] / "devcluster/lab"
CORE, IB, HEADER = (
    "drivers/net/ethernet/mellanox/mlx5/core/main.c",
    "drivers/infiniband/hw/mlx5/main.c",
    "include/linux/mlx5/driver.h",
)
STAND_INS = {
    "dpkg-query": "echo install ok installed",
    "dpkg": 'printf "$VERIFIED"',
    "tar": f"""cd "$4" && mkdir linux-source-6.12 && cd linux-source-6.12
for file in {CORE} {IB} {HEADER} fs/exec.c; do mkdir -p "${{file%/*}}"; echo original >$file; done""",
    "make": 'cd "$3" && eval "$MEANWHILE"',
    "strip": 'echo kernel >"$2"; chmod +x "$2"',
}


def build(folder: Path, meanwhile: str = ":", verified: str = "") -> "subprocess.CompletedProcess[str]":
    """Run the build of a copy with stand-ins; ``verified`` is what `dpkg --verify` prints."""
    shutil.copytree(LAB, folder / "lab")
    (folder / "lab/kernel/edit_tree.py").write_text("import sys\nsys.exit('--check' in sys.argv)\n")
    (folder / "bin").mkdir()
    for name, script in STAND_INS.items():
        (folder / "bin" / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / "bin" / name).chmod(0o755)
    more = {"PATH": f"{folder}/bin:{os.environ['PATH']}", "XDG_CACHE_HOME": str(folder / "cache")}
    more |= {"MEANWHILE": meanwhile, "VERIFIED": verified}
    environment = {name: value for name, value in os.environ.items() if name != "MOORING_LAB_TREE"} | more
    command = (folder / "lab/build",)
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)


def kept(folder: Path) -> list[str]:
    return [path.name for path in (folder / "cache/mooring-lab").iterdir()]


@pytest.mark.parametrize("meanwhile", [":", "echo changed >fs/exec.c"])
def test_other_files_of_the_kernel_may_be_edited(tmp_path: Path, meanwhile: str) -> None:
    """The kernel is in the cache, and the tree is gone."""
    done = build(tmp_path, meanwhile)
    assert done.returncode == 0, done.stderr
    assert kept(tmp_path) == [Path(done.stdout.strip()).name]


@pytest.mark.parametrize(
    "meanwhile",
    [
        *(f"echo changed >{file}" for file in (CORE, IB, HEADER)),
        f"rm -f {IB}",
        f"echo new >{Path(CORE).with_name('new.c')}",
    ],
)
def test_a_driver_that_differs_makes_no_kernel(tmp_path: Path, meanwhile: str) -> None:
    """A file that is changed, gone or added, in any of the drivers' folders."""
    done = build(tmp_path, meanwhile)
    assert done.returncode == 1
    assert "mlx5_core and mlx5_ib are not those of Debian's linux-source-6.12" in done.stderr
    assert kept(tmp_path) == []


def test_a_package_that_is_not_as_it_was_installed_is_not_unpacked(tmp_path: Path) -> None:
    done = build(tmp_path, verified="??5??????   /usr/src/linux-source-6.12.tar.xz\\n")
    assert done.returncode == 1
    assert "dpkg --verify: the files of linux-source-6.12 are changed" in done.stderr
    assert kept(tmp_path) == []
