"""A release: the source distribution, the wheel built from it, and a clean environment with both.

No network is needed: the build uses the installed hatchling, and the new environment sees the
installed dependencies, but not this source tree. The wheel is built without a C compiler, which
takes seconds instead of a minute; `make test` itself runs on a compiled installation.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from paths import ROOT, SMALL_TRACE

pytestmark = pytest.mark.long

PACKAGES = ("redistribution", "reshape", "scheduler", "simulator", "apps")
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]

#: Imports every module of the packages; MPI is loaded and not initialised.
IMPORT_ALL = """
import importlib, pkgutil, sys
import mpi4py
mpi4py.rc.initialize = False
for package in sys.argv[1:]:
    found = importlib.import_module(package)
    print(package, found.__file__)
    for module in pkgutil.walk_packages(found.__path__, package + "."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
"""

Run = Callable[..., str]


def checked(*command: object, cwd: Path, **environment: str) -> str:
    """Run a command outside of the source tree and return its output."""
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=inherited | {"PYTHONDONTWRITEBYTECODE": "1"} | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("release")


@pytest.fixture(scope="module")
def sdist(folder: Path) -> Path:
    checked(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", folder, cwd=ROOT)
    (path,) = folder.glob("*.tar.gz")
    return path


@pytest.fixture(scope="module")
def wheel(sdist: Path, folder: Path) -> Path:
    pip = sys.executable, "-m", "pip", "--disable-pip-version-check"
    options = "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", folder
    checked(*pip, "wheel", *options, sdist, cwd=folder, CC="no-compiler")
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def installed(wheel: Path, folder: Path) -> Run:
    """A function that runs a program of a new environment in which the wheel is installed."""
    home = folder / "environment"
    checked(sys.executable, "-m", "venv", "--without-pip", home, cwd=folder)
    paths = sysconfig.get_paths(vars={"base": str(home), "platbase": str(home)})
    dependencies = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    # A .pth file adds the folder to sys.path and does not read the .pth files in it, so that an
    # editable installation of this project stays invisible.
    Path(paths["purelib"], "dependencies.pth").write_text("\n".join(sorted(dependencies)))
    pip = sys.executable, "-m", "pip", "--disable-pip-version-check", "--python"
    options = "--no-deps", "--no-index", "--ignore-installed"
    checked(*pip, home / "bin" / "python", "install", *options, wheel, cwd=folder)

    def run(program: str, *arguments: object, **environment: str) -> str:
        return checked(home / "bin" / program, *arguments, cwd=folder, **environment)

    return run


def test_the_source_distribution_is_complete(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}
    expected = "README.md CHANGELOG.md CONTRIBUTING.md LICENSE pyproject.toml hatch_build.py"
    expected += " Makefile docs/design.md examples/first_application.py tests/test_release.py"
    expected += " redistribution/copies/kernel.c benchmarks/README.md docs/conf.py CITATION.cff"
    assert set(expected.split()) <= names
    assert not [name for name in names if name.endswith((".so", ".pyc", ".sqlite-wal"))]


def test_the_citation_names_the_release() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == VERSION
    assert citation["license"] == "BSD-3-Clause"


def test_the_wheel_holds_the_packages_and_the_studies(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    tops = {name.split("/")[0] for name in names}
    assert tops == {*PACKAGES, f"reshape_mpi-{VERSION}.dist-info"}
    assert {
        "simulator/examples/studies/backfilling.yaml",
        "simulator/examples/traces/synthetic.swf",
        "simulator/studies/papers/prio.yaml",
    } <= names


def test_every_module_can_be_imported(installed: Run, folder: Path) -> None:
    program = "python", "-c", IMPORT_ALL, *PACKAGES
    lines = installed(*program, LD_LIBRARY_PATH=str(Path(sys.prefix, "lib"))).splitlines()
    locations = dict(line.split() for line in lines)
    assert set(locations) == set(PACKAGES)
    for location in locations.values():
        assert Path(location).is_relative_to(folder / "environment")


def test_the_commands_work(installed: Run) -> None:
    assert VERSION in installed("reshape", "--version")
    assert "mean wait" in installed("reshape", "simulate", SMALL_TRACE).replace("_", " ")


def test_the_shipped_studies_work(installed: Run, folder: Path) -> None:
    listing = installed("reshape", "study")
    assert "How much does backfilling gain" in listing
    assert str(folder / "environment") in listing, "the traces of the wheel, not of the source tree"
    part = "--seeds", "1", "--set", "policy=fcfs", "--set", "load=1"
    assert "mean_bounded_slowdown" in installed("reshape", "study", "backfilling", *part)
