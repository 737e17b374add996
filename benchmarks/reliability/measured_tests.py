"""Branch coverage of each folder by the tests, child processes included.

    python benchmarks/reliability/measured_tests.py --out DIR [--tree TREE] [-- PYTEST OPTIONS]
    python benchmarks/reliability/measured_tests.py --out DIR --before OTHER_DIR

The first form runs tests of a source tree and prints the coverage of each folder. The second prints
what an earlier measurement executed and this one does not: lines and branches of each folder, and
their share in percent of the folder, by which the coverage can have fallen at most. If only some
files of tests were changed, it is enough to measure these files, as they were and as they are.

Services, agents, ranks of MPI jobs and commands are measured as well, because every Python process
reads its settings from the environment (``COVERAGE_PROCESS_START``). A process that is killed by
SIGKILL leaves no measurement. The sources run instead of the compiled core. The tree needs an
environment with the extra ``dev`` in ``TREE/.venv``.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import coverage

PACKAGES = ("redistribution", "reshape", "scheduler", "simulator", "apps")
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
disable_warnings = no-data-collected, module-not-measured, module-not-imported
"""


def settings(tree: Path, out: Path) -> Path:
    """Write the settings of coverage for a source tree, and return the path of their file."""
    (out / "data").mkdir(parents=True, exist_ok=True)
    sources = "\n".join(f"    {tree / package}/*" for package in PACKAGES)
    path = out / "coverage.cfg"
    path.write_text(_SETTINGS.format(data=out / "data" / "coverage", sources=sources))
    return path


def measure(tree: Path, out: Path, options: list[str]) -> int:
    """Run tests of a tree and combine what its processes have measured.

    Returns
    -------
    int : exit code of pytest.
    """
    python = str(tree / ".venv" / "bin" / "python")
    environment = {
        **os.environ,
        "RESHAPE_COMPILED": "0",
        "COVERAGE_PROCESS_START": str(settings(tree, out)),
    }
    argv = [python, "-m", "pytest", *options]
    done = subprocess.run(argv, cwd=tree, env=environment, check=False)
    combined = coverage.Coverage(data_file=str(out / "data" / "coverage"), config_file=False)
    combined.combine([str(out / "data")])
    executed = combined.get_data().measured_files()
    sources = {str(path) for package in PACKAGES for path in (tree / package).rglob("*.py")}
    combined.get_data().touch_files(sorted(sources - executed))  # no line of them is executed
    combined.save()
    report = out / "coverage.json"
    combined.json_report(outfile=str(report), ignore_errors=True)
    files = json.loads(report.read_text())["files"]
    relative = {str(Path(name).resolve().relative_to(tree)): file for name, file in files.items()}
    report.write_text(json.dumps(relative))
    return done.returncode


def _executed(file: dict[str, Any]) -> set[tuple[int, ...]]:
    """Return the executed lines and branches of a file."""
    lines = {(line,) for line in file["executed_lines"]}
    return lines | {tuple(branch) for branch in file["executed_branches"]}


def _possible(file: dict[str, Any]) -> int:
    return int(file["summary"]["num_statements"]) + int(file["summary"]["num_branches"])


def _print_table(out: Path) -> None:
    """Print the coverage of each folder."""
    sums: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for name, file in json.loads((out / "coverage.json").read_text()).items():
        row = sums[str(Path(name).parent)]
        row[0] += len(_executed(file))
        row[1] += _possible(file)
    for folder, (executed, possible) in sorted(sums.items()):
        print(f"{folder:40} {100 * executed / max(possible, 1):6.2f} %  of {possible}")


def _print_loss(before: Path, after: Path) -> None:
    """Print what `before` executed and `after` does not."""
    old = json.loads((before / "coverage.json").read_text())
    new = json.loads((after / "coverage.json").read_text())
    lost: dict[str, int] = defaultdict(int)
    possible: dict[str, int] = defaultdict(int)
    for name, file in old.items():
        folder = str(Path(name).parent)
        possible[folder] += _possible(file)
        gone = _executed(file) - (_executed(new[name]) if name in new else set())
        lost[folder] += len(gone)
        for place in sorted(gone):
            print(f"{name}:{'->'.join(map(str, place))}")
    for folder, count in sorted(lost.items()):
        print(f"{folder:40} {count:6} lost, {100 * count / max(possible[folder], 1):6.2f} %")


def main() -> None:
    """Measure a tree, or compare two measurements."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    parser.add_argument("--tree", type=Path, default=Path(), help="source tree; default: this one")
    parser.add_argument("--before", type=Path, metavar="OTHER_DIR", help="an earlier measurement")
    words = sys.argv[1:]
    end = words.index("--") if "--" in words else len(words)
    chosen, of_pytest = parser.parse_args(words[:end]), words[end + 1 :]
    out = chosen.out.resolve()
    if chosen.before is not None:
        _print_loss(chosen.before, out)
        return
    code = measure(chosen.tree.resolve(), out, of_pytest)
    _print_table(out)
    sys.exit(code)


if __name__ == "__main__":
    main()
