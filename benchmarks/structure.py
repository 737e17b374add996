"""What a reader of the code has to hold: files, classes, messages, modules with one importer.

    python benchmarks/structure.py [--without NAME ...] [--json] [--parts]

counts the product code: the five packages, without tests, examples and benchmarks. `--without`
leaves out modules and folders, such as `scheduler.client.web`. `--parts` names the modules that one
other module of their folder imports and no other.
"""

from __future__ import annotations

import argparse
import ast
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
from module_graph import FOLDERS, MODULES, longest_chain, parts_of_one_module, tree_of

from scheduler.protocol.messages import Message


def figures(without: Sequence[str] = ()) -> dict[str, int]:
    """Count the figures of the table, without some modules and folders."""
    if unknown := [name for name in without if name not in MODULES]:
        raise SystemExit(f"--without: there is no module or folder {', '.join(unknown)}")
    left_out = tuple(f"{name}." for name in without)
    texts = {n: p.read_text() for n, p in MODULES.items() if not f"{n}.".startswith(left_out)}
    code = [name for name in texts if tree_of(name).body]
    nodes = [node for name in texts for node in ast.walk(tree_of(name))]
    functions = [n for n in nodes if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    lengths = sorted((node.end_lineno or 0) - node.lineno + 1 for node in functions)
    parts = texts.keys() & parts_of_one_module()
    return {
        "lines": sum(text.count("\n") for text in texts.values()),
        "files": len(texts),
        "files that only mark a folder": sum(len(tree_of(name).body) <= 1 for name in code),
        "folders": len(texts.keys() & set(FOLDERS)),
        "classes": sum(isinstance(node, ast.ClassDef) for node in nodes),
        "functions": len(functions),
        "lines of the median function": lengths[len(lengths) // 2],
        "lines of the longest function": lengths[-1],
        "messages": len(get_args(Message)),
        "modules that one module of their folder imports": len(parts),
        "longest chain of imports": len(longest_chain()),
    }


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--without", nargs="+", default=(), metavar="NAME", help="leave these out")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--parts", action="store_true", help="name modules with one importer")
    options = parser.parse_args()
    if options.parts:
        for name, only in sorted(parts_of_one_module().items()):
            print(f"{MODULES[name].read_text().count(chr(10)):5} {name}  <- {only}")
        return
    found = figures(options.without)
    if options.json:
        print(json.dumps(found, indent=2))
        return
    for name, count in found.items():
        print(f"{count:8,}  {name}")


if __name__ == "__main__":
    main()
