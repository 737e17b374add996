"""Which tests execute which lines: the whole suite under branch coverage, child processes included.

    python benchmarks/reliability/traced_tests.py --out DIR [--tree TREE] [-- PYTEST OPTIONS]
    python benchmarks/reliability/traced_tests.py --out DIR --compare OTHER_DIR

The first form runs the tests of a source tree and prints the branch coverage of each folder; the
second prints the coverage of two measurements side by side. Services, agents, ranks of MPI jobs and
commands are measured as well, because every Python process reads its settings from the environment
(``COVERAGE_PROCESS_START``). A process that is killed by SIGKILL leaves no measurement. The sources
run instead of the compiled core. Lines of a child process belong to the test during which the
process started (``PYTEST_CURRENT_TEST``).

The tree needs an environment with the extra ``dev`` in ``TREE/.venv``. This file is a plugin of
pytest as well (``-p traced_tests``).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import coverage
import pytest

PACKAGES = ("redistribution", "reshape", "scheduler", "simulator", "apps")
_DURATIONS = "RESHAPE_TEST_DURATIONS"
_SETTINGS = """\
[run]
branch = true
parallel = true
sigterm = true
concurrency = thread
patch =
    _exit
    fork
data_file = {data}
include =
{sources}
context = ${{PYTEST_CURRENT_TEST-outside}}
disable_warnings = no-data-collected, module-not-measured, module-not-imported
"""


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Attribute the lines of this process to its test, and note how long the test takes."""
    measured = coverage.Coverage.current()
    if measured is not None:
        measured.switch_context(item.nodeid)
    begin = time.monotonic()
    result = yield
    if _DURATIONS in os.environ:
        with open(os.environ[_DURATIONS], "a") as file:
            file.write(json.dumps([item.nodeid, round(time.monotonic() - begin, 3)]) + "\n")
    return result


def settings(tree: Path, out: Path) -> Path:
    """Write the settings of coverage for a source tree, and return the path of their file."""
    (out / "data").mkdir(parents=True, exist_ok=True)
    sources = "\n".join(f"    {tree / package}/*" for package in PACKAGES)
    path = out / "coverage.cfg"
    path.write_text(_SETTINGS.format(data=out / "data" / "coverage", sources=sources))
    return path


def measure(tree: Path, out: Path, options: list[str]) -> int:
    """Run the tests of a tree and combine what its processes have measured.

    Returns
    -------
    int : exit code of pytest.
    """
    python = str(tree / ".venv" / "bin" / "python")
    environment = {
        **os.environ,
        "RESHAPE_COMPILED": "0",
        "COVERAGE_PROCESS_START": str(settings(tree, out)),
        _DURATIONS: str(out / "durations.jsonl"),
        "PYTHONPATH": str(Path(__file__).parent),
    }
    argv = [python, "-m", "pytest", "-p", "traced_tests", *options]
    done = subprocess.run(argv, cwd=tree, env=environment, check=False)
    combined = coverage.Coverage(data_file=str(out / "data" / "coverage"), config_file=False)
    combined.combine([str(out / "data")])
    executed = combined.get_data().measured_files()
    sources = {str(path) for package in PACKAGES for path in (tree / package).rglob("*.py")}
    combined.get_data().touch_files(sorted(sources - executed))  # no line of them is executed
    combined.save()
    return done.returncode


def by_folder(tree: Path, out: Path) -> dict[str, tuple[int, int]]:
    """Return the executed and all lines and branches of each folder of a measurement."""
    cov = coverage.Coverage(data_file=str(out / "data" / "coverage"), config_file=False)
    cov.load()
    report = out / "coverage.json"
    cov.json_report(outfile=str(report), ignore_errors=True)
    sums: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for name, file in json.loads(report.read_text())["files"].items():
        path = Path(name)
        relative = path.relative_to(tree) if path.is_absolute() else path
        totals = file["summary"]
        row = sums[str(relative.parent)]
        row[0] += totals["covered_lines"] + totals["covered_branches"]
        row[1] += totals["num_statements"] + totals["num_branches"]
    result = {folder: (row[0], row[1]) for folder, row in sorted(sums.items())}
    (out / "folders.json").write_text(json.dumps(result))
    return result


def _print_comparison(before: Path, after: Path) -> None:
    old = json.loads((before / "folders.json").read_text())
    new = json.loads((after / "folders.json").read_text())
    print(f"{'folder':40} {'before':>7} {'after':>7} {'change':>7}")
    for folder in sorted(old.keys() | new.keys()):
        shares = [
            100 * row[folder][0] / row[folder][1] if row.get(folder, (0, 0))[1] else None
            for row in (old, new)
        ]
        texts = [f"{share:7.2f}" if share is not None else "      -" for share in shares]
        change = f"{shares[1] - shares[0]:+7.2f}" if None not in shares else ""  # type: ignore[operator]
        print(f"{folder:40} {texts[0]} {texts[1]} {change}")


def main() -> None:
    """Measure a tree, or compare two measurements."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    parser.add_argument("--tree", type=Path, default=Path(), help="source tree; default: this one")
    parser.add_argument("--compare", type=Path, metavar="OTHER_DIR", help="an earlier measurement")
    parser.add_argument("options", nargs="*", help="options of pytest")
    chosen = parser.parse_args()
    tree, out = chosen.tree.resolve(), chosen.out.resolve()
    if chosen.compare is not None:
        _print_comparison(chosen.compare, out)
        return
    code = measure(tree, out, chosen.options)
    for folder, (executed, possible) in by_folder(tree, out).items():
        print(f"{folder:40} {100 * executed / max(possible, 1):6.2f} %  of {possible}")
    sys.exit(code)


if __name__ == "__main__":
    main()
