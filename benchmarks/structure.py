"""What a reader of the code has to hold: files, classes, messages, modules with one importer.

    python benchmarks/structure.py [--json] [--parts]

counts the product code: the five packages, without tests, examples and benchmarks. `--parts` names
the modules that one other module of their folder imports and no other.
"""

from __future__ import annotations

import argparse
import ast
import json
import sys
from pathlib import Path
from typing import get_args

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
from module_graph import FOLDERS, MODULES, longest_chain, parts_of_one_module, tree_of

from scheduler.protocol.messages import Message


def figures() -> dict[str, int]:
    """Count the figures of the table."""
    texts = {name: path.read_text() for name, path in MODULES.items()}
    code = [name for name in texts if tree_of(name).body]
    nodes = [node for name in texts for node in ast.walk(tree_of(name))]
    functions = [n for n in nodes if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    lengths = sorted((node.end_lineno or 0) - node.lineno + 1 for node in functions)
    return {
        "lines": sum(text.count("\n") for text in texts.values()),
        "files": len(texts),
        "files that only mark a folder": sum(len(tree_of(name).body) <= 1 for name in code),
        "folders": len(FOLDERS) - 1,
        "classes": sum(isinstance(node, ast.ClassDef) for node in nodes),
        "functions": len(functions),
        "lines of the median function": lengths[len(lengths) // 2],
        "lines of the longest function": lengths[-1],
        "messages": len(get_args(Message)),
        "modules that one module of their folder imports": len(parts_of_one_module()),
        "longest chain of imports": len(longest_chain()),
    }


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--parts", action="store_true", help="name modules with one importer")
    options = parser.parse_args()
    if options.parts:
        for name, only in sorted(parts_of_one_module().items()):
            print(f"{MODULES[name].read_text().count(chr(10)):5} {name}  <- {only}")
        return
    found = figures()
    if options.json:
        print(json.dumps(found, indent=2))
        return
    for name, count in found.items():
        print(f"{count:8,}  {name}")


if __name__ == "__main__":
    main()
