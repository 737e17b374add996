"""A trial by mutation: single-line faults in the product, and whether the tests notice them.

    python benchmarks/reliability/traced_tests.py --out DIR/traced        # once: about an hour
    python benchmarks/reliability/mutants.py --traced DIR/traced --out DIR/trial
        [--faults 60] [--seed 1] [--only 3,17] [--parallel 2] [--tree TREE]

The faults are drawn with a seed, the same number from each area of the product. For each fault the
trial runs the tests that execute its line, the shortest first, until one fails; a test that fails
has to pass without the fault. A test may take 30 s and a fault 3 minutes. The outcomes are kept in
OUT/outcomes.jsonl, and a trial that is run again does only the faults that are missing. The exit
code is 0 if every fault was found.

A fault is one of: a comparison turned round, a sum that becomes a difference, `and` that becomes
`or`, a condition negated, and a call whose result is not used left out (an order that is not
appended, a message that is not sent).
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from queue import SimpleQueue

import coverage

#: Folders from which faults are drawn, by area.
AREAS = {
    "decisions": (
        "scheduler/core",
        "scheduler/model",
        "scheduler/policies",
        "scheduler/sites",
        "scheduler/state",
    ),
    "resizing": ("reshape/resizing", "reshape/data", "scheduler/service/components"),
    "redistribution": ("redistribution",),
    "journal": ("scheduler/replay", "scheduler/service/record", "scheduler/service/reading"),
    "simulator": ("simulator/engine", "simulator/results", "simulator/traces", "simulator/study"),
}
TEST_S, FAULT_S = 30, 180
_COMPARISONS = {
    ast.Lt: ("<", ">"),
    ast.Gt: (">", "<"),
    ast.LtE: ("<=", ">"),
    ast.GtE: (">=", "<"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
}
_NO_EFFECT = ("log", "logger", "warnings", "logging")


@dataclass(frozen=True)
class Fault:
    """A change of one line: columns `begin` to `end` of `line` (from 1) become `text`."""

    number: int
    area: str
    file: str
    line: int
    begin: int
    end: int
    text: str

    def applied(self, source: str) -> str:
        """Return a source text with this fault."""
        lines = source.splitlines(keepends=True)
        row = lines[self.line - 1]
        lines[self.line - 1] = row[: self.begin] + self.text + row[self.end :]
        return "".join(lines)


def _between(lines: list[str], left: ast.expr, right: ast.expr, old: str) -> tuple[int, int] | None:
    """Return the columns of an operator between two operands on one line."""
    if left.end_lineno != right.lineno or left.end_col_offset is None:
        return None
    begin = lines[right.lineno - 1].find(old, left.end_col_offset, right.col_offset)
    return None if begin < 0 else (begin, begin + len(old))


def changes(source: str) -> Iterator[tuple[int, int, int, str]]:
    """Yield the single-line faults of a source text: line, begin, end and replacement."""
    lines = source.splitlines()
    ascii_only = [line.isascii() for line in lines]  # ast counts columns in bytes
    for node in ast.walk(ast.parse(source)):
        line = getattr(node, "lineno", None)
        if line is None or not ascii_only[line - 1]:
            continue
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            old, new = _COMPARISONS[type(node.ops[0])]
            if span := _between(lines, node.left, node.comparators[0], old):
                yield node.comparators[0].lineno, *span, new
        elif isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub)):
            old, new = ("+", "-") if isinstance(node.op, ast.Add) else ("-", "+")
            if span := _between(lines, node.left, node.right, old):
                yield node.right.lineno, *span, new
        elif isinstance(node, ast.BoolOp):
            old, new = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
            if span := _between(lines, node.values[0], node.values[1], old):
                yield node.values[1].lineno, *span, new
        elif isinstance(node, (ast.If, ast.While)) and node.test.lineno == node.test.end_lineno:
            test = node.test
            text = lines[test.lineno - 1][test.col_offset : test.end_col_offset]
            yield test.lineno, test.col_offset, test.end_col_offset or 0, f"not ({text})"
        elif (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Call)
            and node.lineno == node.end_lineno
            and not ast.unparse(node.value.func).startswith(_NO_EFFECT)
        ):
            yield node.lineno, node.col_offset, node.end_col_offset or 0, "pass"


def draw(tree: Path, count: int, seed: int) -> list[Fault]:
    """Return `count` faults of a tree, the same number from each area, drawn with a seed."""
    rng = random.Random(seed)
    faults: list[Fault] = []
    for index, (area, folders) in enumerate(AREAS.items()):
        files = sorted(path for folder in folders for path in (tree / folder).rglob("*.py"))
        possible = [
            (str(path.relative_to(tree)), *change)
            for path in files
            for change in sorted(set(changes(path.read_text())))
        ]
        share = count // len(AREAS) + (index < count % len(AREAS))
        for chosen in rng.sample(possible, share):
            faults.append(Fault(len(faults) + 1, area, *chosen))
    return faults


class Traced:
    """Which tests execute a line, and how long each takes: a measurement of `traced_tests`."""

    def __init__(self, folder: Path, tree: Path) -> None:
        self._data = coverage.CoverageData(str(folder / "data" / "coverage"))
        self._data.read()
        self._tree = tree
        self._names = {name: name for name in self._data.measured_files()}
        rows = (json.loads(line) for line in (folder / "durations.jsonl").read_text().splitlines())
        self.durations: dict[str, float] = dict(rows)
        self._of_file: dict[str, list[str]] = defaultdict(list)
        for test in self.durations:
            self._of_file[test.partition("::")[0]].append(test)

    def tests(self, file: str, line: int) -> list[str]:
        """Return the tests that execute a line, the shortest first.

        A child process belongs to the test that started it. If other tests of that file used it too
        (a service for a module), they come last.
        """
        name = next((name for name in self._names if name.endswith(f"/{file}")), None)
        contexts = self._data.contexts_by_lineno(name).get(line, []) if name else []
        direct: set[str] = set()
        shared: set[str] = set()
        for context in contexts:
            test = context.removeprefix("outside|")
            for phase in (" (setup)", " (call)", " (teardown)"):
                if test.endswith(phase):
                    test = test.removesuffix(phase)
                    shared.update(self._of_file[test.partition("::")[0]])
            if test in self.durations:
                direct.add(test)
        return [
            test
            for group in (direct, shared - direct)
            for test in sorted(group, key=self.durations.__getitem__)
            if self.durations[test] <= TEST_S
        ]


class Trial:
    """Runs tests in copies of a tree, one copy for each fault that is tried at a time."""

    def __init__(self, tree: Path, out: Path, copies: int) -> None:
        self.tree, self._passes = tree, dict[str, bool]()
        self._copies: SimpleQueue[Path] = SimpleQueue()
        for number in range(copies):
            copy = out / "trees" / str(number) / "tree"
            self._copy(copy)
            self._copies.put(copy)

    def _copy(self, to: Path) -> None:
        shutil.rmtree(to, ignore_errors=True)
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=self.tree,
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        kernel = sorted((self.tree / "redistribution/copies").glob("*.so"))
        names = [name for name in listed.split("\0") if name and (self.tree / name).is_file()]
        for name in [*names, *(str(path.relative_to(self.tree)) for path in kernel)]:
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(self.tree / name, to / name)
        beside = self.tree.parent / "shared"  # traces, if they are there
        if beside.exists() and not (to.parent / "shared").exists():
            (to.parent / "shared").symlink_to(beside.resolve())

    def _failing(self, copy: Path, tests: list[str]) -> str | None:
        """Run tests until one fails; return it, or `None`."""
        listed = copy.parent / "tests.txt"
        listed.write_text("\n".join(tests))
        python = str(self.tree / ".venv" / "bin" / "python")
        argv = [python, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
        argv += [f"--timeout={TEST_S}", "--no-header", "--tb=no", "-rfE", f"@{listed}"]
        environment = {**os.environ, "RESHAPE_COMPILED": "0", "PYTHONPATH": str(copy)}
        group = subprocess.Popen(
            argv,
            cwd=copy,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            output, _ = group.communicate(timeout=FAULT_S)
        except subprocess.TimeoutExpired:
            group.terminate()
            try:
                group.communicate(timeout=20)
            except subprocess.TimeoutExpired:
                group.kill()
                group.communicate()
            return None
        if group.returncode == 0:
            return None
        for line in output.splitlines():
            if line.startswith(("FAILED ", "ERROR ")):
                return line.split(" ", 1)[1].split(" - ")[0]
        return f"pytest ended with {group.returncode}: {output[-300:]}"

    def run(self, fault: Fault, tests: list[str]) -> dict[str, object]:
        """Try a fault; return its outcome."""
        copy = self._copies.get()
        path = copy / fault.file
        source = path.read_text()
        begin = time.monotonic()
        try:
            path.write_text(fault.applied(source))
            remaining, by = list(tests), None
            while remaining and by is None and time.monotonic() - begin < FAULT_S:
                by = self._failing(copy, remaining)
                if by is None:
                    break
                path.write_text(source)
                if by in remaining and not self._sound(copy, by):
                    remaining = remaining[remaining.index(by) + 1 :]
                    by = None  # it fails without the fault, too
                path.write_text(fault.applied(source))
        finally:
            path.write_text(source)
            self._copies.put(copy)
        return asdict(fault) | {
            "was": source.splitlines()[fault.line - 1].strip(),
            "tests": len(tests),
            "by": by,
            "seconds": round(time.monotonic() - begin, 1),
        }

    def _sound(self, copy: Path, test: str) -> bool:
        """Whether a test passes without a fault."""
        if test not in self._passes:
            self._passes[test] = self._failing(copy, [test]) is None
        return self._passes[test]


def main() -> int:
    """Run a trial."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--traced", type=Path, required=True, help="measurement of traced_tests")
    parser.add_argument("--out", type=Path, required=True, help="folder of the outcomes")
    parser.add_argument("--faults", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", help="numbers of faults, separated by commas")
    parser.add_argument("--parallel", type=int, default=2, help="faults tried at a time")
    parser.add_argument("--tree", type=Path, default=Path(__file__).parents[2])
    options = parser.parse_args()
    tree, out = options.tree.resolve(), options.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    record = out / "outcomes.jsonl"
    done = [json.loads(line) for line in record.read_text().splitlines()] if record.exists() else []
    known = {outcome["number"] for outcome in done}
    faults = draw(tree, options.faults, options.seed)
    if options.only:
        numbers = {int(number) for number in options.only.split(",")}
        faults = [fault for fault in faults if fault.number in numbers]
    traced = Traced(options.traced.resolve(), tree)
    missing = [(f, traced.tests(f.file, f.line)) for f in faults if f.number not in known]
    trial = Trial(tree, out, min(options.parallel, len(missing)))
    with ThreadPoolExecutor(options.parallel) as pool, record.open("a") as file:
        for outcome in pool.map(lambda pair: trial.run(*pair), missing):
            file.write(json.dumps(outcome) + "\n")
            file.flush()
            done.append(outcome)
            print(_row(outcome), flush=True)
    survivors = [outcome for outcome in done if outcome["by"] is None]
    print(f"{len(done)} faults, {len(done) - len(survivors)} found")
    for outcome in survivors:
        print(_row(outcome))
    return 1 if survivors else 0


def _row(outcome: dict[str, object]) -> str:
    """Return the line of a table for an outcome."""
    where = f"{outcome['file']}:{outcome['line']}"
    result = outcome["by"] or "SURVIVED"
    change = f"{outcome['was']} -> {outcome['text']}"
    return f"{outcome['number']} | {outcome['area']} | {where} | {change} | {result}"


if __name__ == "__main__":
    sys.exit(main())
