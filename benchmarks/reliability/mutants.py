"""A trial by mutation: single-line faults in the product, and whether the tests notice them.

    python benchmarks/reliability/mutants.py trace --out DIR [--faults 60] [--seed 1]
        [-- PYTEST OPTIONS]
    python benchmarks/reliability/mutants.py try --out DIR [--only 3,17] [--parallel 2]

`trace` draws the faults with a seed, the same number from each area of the product. It runs the
tests once in a copy of the tree whose faulty lines note that they are reached, and by which test.
This includes services, agents and ranks of MPI jobs, because a process inherits the name of the
test in its environment (``PYTEST_CURRENT_TEST``). `try` then makes each fault in turn and runs the
tests that reach its line, the shortest first, until one fails; that test has to pass without the
fault. A test may take 30 s and a fault 3 minutes. Outcomes are kept in DIR/outcomes.jsonl, and a
trial that is run again does only the faults that are missing. The exit code is 0 if all faults were
found.

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

import pytest

#: Folders from which faults are drawn, by area.
AREAS = {
    "decisions": (
        "scheduler/core",
        "scheduler/model",
        "scheduler/policies",
        "scheduler/state",
    ),
    "resizing": ("reshape/resizing", "reshape/data", "scheduler/service/components"),
    "redistribution": ("redistribution",),
    "journal": ("scheduler/journal",),
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


#: Module of the copy whose function the lines under trial call.
_REACHED = "redistribution/reached.py"
_REACHED_SOURCE = """\
import os

SEEN = set()


def reached(number):
    pair = f"{{number}} {{os.environ.get('PYTEST_CURRENT_TEST', '')}}\\n"
    if pair not in SEEN:
        SEEN.add(pair)
        with open({path!r}, "a") as file:
            file.write(pair)
"""
_DURATIONS = "RESHAPE_TEST_DURATIONS"


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note how long each phase of a test takes (this file is the plugin of a traced run)."""
    if _DURATIONS in os.environ and "PYTEST_XDIST_WORKER" not in os.environ:
        with open(os.environ[_DURATIONS], "a") as file:
            file.write(json.dumps([report.nodeid, round(report.duration, 3)]) + "\n")


Span = tuple[int, int, int, int]
"""First line (from 1), first column, last line and end column of a part of a source text."""


@dataclass(frozen=True)
class Fault:
    """A change: `span` becomes `text`. The expression in `whole` contains it."""

    number: int
    area: str
    file: str
    span: Span
    text: str
    whole: Span

    def applied(self, source: str) -> str:
        """Return a source text with this fault."""
        return _replaced(source, self.span, self.text)


def _offset(source: str, line: int, column: int) -> int:
    return sum(len(row) for row in source.splitlines(keepends=True)[: line - 1]) + column


def _replaced(source: str, span: Span, text: str) -> str:
    begin, end = _offset(source, *span[:2]), _offset(source, *span[2:])
    return source[:begin] + text + source[end:]


def _span(node: ast.expr | ast.stmt) -> Span:
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    return node.lineno, node.col_offset, node.end_lineno, node.end_col_offset


def _operator(lines: list[str], left: ast.expr, right: ast.expr, old: str) -> Span | None:
    """Return the span of an operator between two operands on one line."""
    if left.end_lineno != right.lineno or left.end_col_offset is None:
        return None
    begin = lines[right.lineno - 1].find(old, left.end_col_offset, right.col_offset)
    return None if begin < 0 else (right.lineno, begin, right.lineno, begin + len(old))


def changes(source: str) -> Iterator[tuple[Span, str, Span]]:
    """Yield the faults of a source text: span, replacement and the whole expression."""
    lines = source.splitlines()
    tree = ast.parse(source)
    for node in [node for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)]:
        node.values = []  # Python 3.11 does not know the columns of expressions in f-strings
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            old, new = _COMPARISONS[type(node.ops[0])]
            operator = _operator(lines, node.left, node.comparators[0], old)
        elif isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub)):
            old, new = ("+", "-") if isinstance(node.op, ast.Add) else ("-", "+")
            operator = _operator(lines, node.left, node.right, old)
        elif isinstance(node, ast.BoolOp):
            old, new = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
            operator = _operator(lines, node.values[0], node.values[1], old)
        elif isinstance(node, (ast.If, ast.While)) and node.test.lineno == node.test.end_lineno:
            test = _span(node.test)
            yield test, f"not ({lines[test[0] - 1][test[1] : test[3]]})", test
            continue
        elif (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Call)
            and node.lineno == node.end_lineno
            and not ast.unparse(node.value.func).startswith(_NO_EFFECT)
        ):
            yield _span(node), "None", _span(node.value)
            continue
        else:
            continue
        if operator is not None:
            yield operator, new, _span(node)


def draw(tree: Path, count: int, seed: int) -> list[Fault]:
    """Return `count` faults of a tree, the same number from each area, drawn with a seed."""
    rng = random.Random(seed)
    faults: list[Fault] = []
    for index, (area, folders) in enumerate(AREAS.items()):
        files = sorted(path for folder in folders for path in (tree / folder).rglob("*.py"))
        possible = [
            (str(path.relative_to(tree)), *change)
            for path in files
            if (source := path.read_text()).isascii()  # ast counts columns in bytes
            for change in sorted(set(changes(source)))
        ]
        share = count // len(AREAS) + (index < count % len(AREAS))
        for chosen in rng.sample(possible, share):
            faults.append(Fault(len(faults) + 1, area, *chosen))
    return faults


def copied(tree: Path, to: Path) -> None:
    """Copy the files of a tree, and link what is beside it."""
    shutil.rmtree(to, ignore_errors=True)
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=tree,
        capture_output=True,
        check=True,
        text=True,
    ).stdout
    kernel = sorted((tree / "redistribution/copies").glob("*.so"))
    names = [name for name in listed.split("\0") if name and (tree / name).is_file()]
    for name in [*names, *(str(path.relative_to(tree)) for path in kernel)]:
        (to / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(tree / name, to / name)
    beside = tree.parent / "shared"  # traces, if they are there
    if beside.exists() and not (to.parent / "shared").exists():
        (to.parent / "shared").symlink_to(beside.resolve())


def environment(copy: Path) -> dict[str, str]:
    """Return the environment of tests that run in a copy of the tree."""
    paths = os.pathsep.join((str(copy), str(Path(__file__).parent)))
    return {**os.environ, "RESHAPE_COMPILED": "0", "PYTHONPATH": paths}


def trace(tree: Path, out: Path, faults: list[Fault], options: list[str]) -> int:
    """Run the tests once in a copy that notes which test reaches which faulty line.

    Returns
    -------
    int : exit code of pytest.
    """
    copy = out / "traced" / "tree"
    copied(tree, copy)
    (copy / _REACHED).write_text(_REACHED_SOURCE.format(path=str(out / "reached.txt")))
    by_file: dict[str, list[Fault]] = defaultdict(list)
    for fault in faults:
        by_file[fault.file].append(fault)
    for file, here in by_file.items():
        source = (copy / file).read_text()
        for fault in sorted(here, key=lambda fault: fault.whole, reverse=True):
            begin, end = _offset(source, *fault.whole[:2]), _offset(source, *fault.whole[2:])
            module = '__import__("redistribution.reached", fromlist=["reached"])'
            call = f"({module}.reached({fault.number}), "
            source = f"{source[:begin]}{call}{source[begin:end]})[1]{source[end:]}"
        (copy / file).write_text(source)
    python = str(tree / ".venv" / "bin" / "python")
    argv = [python, "-m", "pytest", "-p", "mutants", "-p", "no:cacheprovider", *options]
    where = environment(copy) | {_DURATIONS: str(out / "durations.jsonl")}
    (out / "faults.json").write_text(json.dumps([asdict(fault) for fault in faults]))
    return subprocess.run(argv, cwd=copy, env=where, check=False).returncode


class Reached:
    """Which tests reach a fault, and how long each takes: the results of a traced run."""

    def __init__(self, out: Path) -> None:
        self.durations: dict[str, float] = defaultdict(float)
        for line in (out / "durations.jsonl").read_text().splitlines():
            test, seconds = json.loads(line)
            if str(out) not in test:  # a test named by a path has another name in another copy
                self.durations[test] += seconds
        self._of_file: dict[str, list[str]] = defaultdict(list)
        for test in self.durations:
            self._of_file[test.partition("::")[0]].append(test)
        self._lines: dict[int, set[str]] = defaultdict(set)
        for line in (out / "reached.txt").read_text().splitlines():
            number, _, test = line.partition(" ")
            self._lines[int(number)].add(test)

    def tests(self, fault: int) -> list[str]:
        """Return the tests that reach a fault, the shortest first.

        A process that several tests of a file share, such as a service of a module, has the name
        of the first one, in its phase `setup`. The other tests of that file come last.
        """
        direct: set[str] = set()
        shared: set[str] = set()
        for line in self._lines[fault]:
            test, _, phase = line.rpartition(" ")
            if test in self.durations:
                direct.add(test)
            if phase == "(setup)":
                shared.update(self._of_file[test.partition("::")[0]])
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
            copied(tree, copy)
            self._copies.put(copy)

    def _failing(self, copy: Path, tests: list[str]) -> str | None:
        """Run tests until one fails; return it, or `None`."""
        listed = copy.parent / "tests.txt"
        listed.write_text("\n".join(tests))
        python = str(self.tree / ".venv" / "bin" / "python")
        argv = [python, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
        argv += [f"--timeout={TEST_S}", "--no-header", "--tb=no", "-rfE", f"@{listed}"]
        group = subprocess.Popen(
            argv,
            cwd=copy,
            env=environment(copy),
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
        if group.returncode == pytest.ExitCode.USAGE_ERROR:
            raise SystemExit(f"the tests of the trace cannot be run: {output}")
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
            "was": source.splitlines()[fault.span[0] - 1].strip(),
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
    """Trace the tests, or run a trial."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["trace", "try"])
    parser.add_argument("--out", type=Path, required=True, help="folder of the outcomes")
    parser.add_argument("--faults", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", help="numbers of faults, separated by commas")
    parser.add_argument("--parallel", type=int, default=2, help="faults tried at a time")
    words = sys.argv[1:]
    end = words.index("--") if "--" in words else len(words)
    options, of_pytest = parser.parse_args(words[:end]), words[end + 1 :]
    tree, out = Path(__file__).resolve().parents[2], options.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    if options.what == "trace":
        return trace(tree, out, draw(tree, options.faults, options.seed), of_pytest)
    record = out / "outcomes.jsonl"
    done = [json.loads(line) for line in record.read_text().splitlines()] if record.exists() else []
    known = {outcome["number"] for outcome in done}
    faults = [
        Fault(**fault | {"span": tuple(fault["span"]), "whole": tuple(fault["whole"])})
        for fault in json.loads((out / "faults.json").read_text())
    ]
    if options.only:
        numbers = {int(number) for number in options.only.split(",")}
        faults = [fault for fault in faults if fault.number in numbers]
    reached = Reached(out)
    missing = [(f, reached.tests(f.number)) for f in faults if f.number not in known]
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
    span = outcome["span"]
    assert isinstance(span, list | tuple)
    where = f"{outcome['file']}:{span[0]}"
    result = outcome["by"] or f"SURVIVED {outcome['tests']} tests"
    change = f"{outcome['was']} -> {outcome['text']}"
    return f"{outcome['number']} | {outcome['area']} | {where} | {change} | {result}"


if __name__ == "__main__":
    sys.exit(main())
