"""The cells of examples/policies.ipynb run in their order, without Jupyter."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from paths import EXAMPLES

NOTEBOOK = EXAMPLES / "policies.ipynb"
#: Executes the cells in `__main__`, as a kernel does, and prints the value of each last line.
RUN = """
import ast, json, sys

cells = json.load(open(sys.argv[1]))["cells"]
for number, cell in enumerate(cell for cell in cells if cell["cell_type"] == "code"):
    tree = ast.parse("".join(cell["source"]))
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, f"cell {number}", "exec"), globals())
    if last is not None:
        print(eval(compile(ast.Expression(last.value), f"cell {number}", "eval"), globals()))
import simulator
figure.savefig("gantt.png")
best = orders.compare("mean_bounded_slowdown", "backfill_order", baseline="fcfs")
print(json.dumps([orders.rows, policies.rows, policies.axes, best["ratio"].tolist()]))
"""


def test_it_is_a_notebook_without_outputs() -> None:
    notebook: dict[str, Any] = json.loads(NOTEBOOK.read_text())
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    for cell in notebook["cells"]:
        wanted = {"cell_type", "id", "metadata", "source"}
        if cell["cell_type"] == "code":
            wanted |= {"execution_count", "outputs"}
            assert (cell["execution_count"], cell["outputs"]) == (None, [])
        assert cell.keys() == wanted
    assert len({cell["id"] for cell in notebook["cells"]}) == len(notebook["cells"])


def test_its_cells_run(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(NOTEBOOK)],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    *shown, last = done.stdout.splitlines()
    compared, resized, axes, ratios = json.loads(last)
    assert (compared, resized, axes) == (60, 24, ["scenario", "seed"])
    assert len(set(ratios)) == 2, "each order gives other schedules"
    assert any(line.startswith("SmallestArea(") for line in shown)
    assert any(line.startswith("Reserve(idle=8)") for line in shown)
    assert (tmp_path / "gantt.png").stat().st_size > 10_000
