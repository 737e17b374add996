"""The compiled core and its sources: the same results, and an edit counts at once."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

import pytest
from paths import ROOT

from scheduler import compiled

TRACE = compiled.ROOT / "examples" / "traces" / "synthetic.swf"
needs_compiled = pytest.mark.skipif(
    not compiled.is_current(),
    reason="the core is not compiled from these sources; `make .venv/.installed` does it",
)


def python(*arguments: object, cwd: Path | None = None, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=cwd,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


@needs_compiled
@pytest.mark.parametrize(
    "options",
    [
        ["--policy", "easy"],
        ["--policy", "conservative", "--select", "first-fit"],
        ["--policy", "easy++", "--set", "event_order=sequential"],
        ["--policy", "easy", "--set", "backfill.reservations=2"],
    ],
    ids=lambda options: " ".join(options[1:]),
)
def test_compiled_or_not_every_byte_is_the_same(options: list[str], tmp_path: Path) -> None:
    written = []
    for wanted in ("0", "1"):
        out = tmp_path / wanted
        told = python(
            "-m", "reshape", "simulate", TRACE, *options, "--out", out, "--json",
            RESHAPE_COMPILED=wanted,
        )  # fmt: skip
        assert ('"core": "compiled"' in told) == (wanted == "1")
        written.append({path.name: path.read_bytes() for path in sorted(out.iterdir())})
    assert written[0] == written[1]
    assert "jobs.csv" in written[0]


@needs_compiled
def test_an_edit_counts_at_once(tmp_path: Path) -> None:
    for package in ("reshape", "redistribution", "scheduler", "simulator"):
        shutil.copytree(compiled.ROOT / package, tmp_path / package)
    for group in compiled.ROOT.glob("*__mypyc*"):
        shutil.copy(group, tmp_path)
    program = (
        "import scheduler.state.queue as module; from scheduler import compiled;"
        "print(compiled.STATE, '|', module.__file__, '|', hasattr(module, 'EDITED'))"
    )
    before = python("-c", program, cwd=tmp_path)
    assert before.startswith("compiled |")
    assert ".so" in before
    edited = tmp_path / "scheduler" / "state" / "queue.py"
    edited.write_text(edited.read_text() + "EDITED = True\n")
    after = python("-c", program, cwd=tmp_path).strip()
    assert after == f"not used, the sources have changed since | {edited} | True"


def test_without_anything_compiled_the_sources_run(tmp_path: Path) -> None:
    for package in ("reshape", "redistribution", "scheduler", "simulator"):
        ignore = shutil.ignore_patterns("*.so", "compiled.digest")
        shutil.copytree(compiled.ROOT / package, tmp_path / package, ignore=ignore)
    program = (
        "import scheduler.clock.loop as e; from scheduler import compiled;"
        "print(compiled.STATE, e.__file__)"
    )
    told = python("-c", program, cwd=tmp_path)
    loop = tmp_path / "scheduler" / "clock" / "loop.py"
    assert told.strip() == f"not compiled {loop}"


def test_an_installation_with_a_compiler_is_compiled() -> None:
    """Without this test a module that mypyc refuses would make every installation slower."""
    installed = json.loads(distribution("reshape-mpi").read_text("direct_url.json") or "{}")
    if installed.get("url") != ROOT.as_uri() or shutil.which("cc") is None:
        pytest.skip("this checkout is not the one that is installed, or there is no C compiler")
    assert compiled.DIGEST.exists(), "pip install --verbose --editable . shows the reason"
