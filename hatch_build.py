"""Build hook: what is compiled at installation if there is a C compiler.

These are redistribution/copies/kernel.c, which copies and hashes, and the modules that
scheduler/compiled.py names, by mypyc. Without a compiler the package is pure Python: NumPy copies,
and simulations take longer.
"""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOURCE, LIBRARY = "redistribution/copies/kernel.c", "redistribution/copies/_kernel.so"
EXTENSION = sysconfig.get_config_var("EXT_SUFFIX")
#: Configuration of mypyc: most dependencies of the project are missing in the build environment.
#: The names that `scheduler` exports lead mypy to the client, whose dependencies are missing here.
MYPY = """\
[mypy]
ignore_missing_imports = True
[mypy-scheduler.client.*]
follow_imports = skip
"""


class Compile(BuildHookInterface):
    """Puts compiled files beside their sources, for wheels and for editable installations."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile; where that is not possible, remove older compiled files."""
        if self.target_name != "wheel":
            return
        root = Path(self.root)
        (root / LIBRARY).unlink(missing_ok=True)
        compiler = shlex.split(os.environ.get("CC", "cc"))
        if os.name != "posix" or not compiler or shutil.which(compiler[0]) is None:
            self.app.display_warning("no C compiler: moves and simulations will take longer")
            return
        if self._kernel(root, compiler):
            platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
            build_data["tag"] = f"py3-none-{platform}"  # loaded by ctypes, so by any Python
            build_data["pure_python"] = False
            build_data["artifacts"].append(LIBRARY)
        made = self._modules(root)
        if made and version != "editable":  # an editable installation uses the files in place
            build_data.pop("tag", None)
            build_data["infer_tag"] = True
            build_data["pure_python"] = False
            build_data["force_include"] |= {str(path): str(path.relative_to(root)) for path in made}

    def _kernel(self, root: Path, compiler: list[str]) -> bool:
        new = root / f"{LIBRARY}.{os.getpid()}"
        command = [*compiler, "-std=c99", "-O3", "-shared", "-fPIC", "-o", new, root / SOURCE]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            new.unlink(missing_ok=True)
            self.app.display_warning(f"{SOURCE} not compiled:\n{done.stderr}")
            return False
        new.rename(root / LIBRARY)  # processes that use the old file keep it
        return True

    def _modules(self, root: Path) -> list[Path]:
        """Compile the modules unless their present sources are compiled; return the files."""
        compiled = _compiled(root)
        sources = [compiled.source(module) for module in compiled.MODULES]
        digest = compiled.digest()
        # Modules that are no longer compiled may have left files, too.
        found = [*root.glob(f"*__mypyc{EXTENSION}")]
        for package in sorted({module.partition(".")[0] for module in compiled.MODULES}):
            found += sorted((root / package).rglob(f"*{EXTENSION}"))
        wanted = {each.with_suffix(EXTENSION) for each in sources}
        if compiled.is_current() and len(found) == len(sources) + 1 and wanted <= set(found):
            return [*found, compiled.DIGEST]
        compiled.DIGEST.unlink(missing_ok=True)  # no old file is used from here on
        for old in found:
            old.unlink()
        files = [str(path.relative_to(root)) for path in sources]
        with tempfile.TemporaryDirectory() as folder:
            config, out = Path(folder, "mypy.ini"), Path(folder, "out")
            config.write_text(MYPY)
            arguments = [f"--config-file={config}", f"--cache-dir={folder}/cache", *files]
            program = _PROGRAM.format(
                arguments=arguments, sources=files, out=str(out), temporary=f"{folder}/temp"
            )
            done = subprocess.run(
                [sys.executable, "-c", program],
                cwd=root,
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode:
                output = (done.stdout + done.stderr)[-2000:]
                self.app.display_warning(f"the decision core is not compiled:\n{output}")
                return []
            made = []
            for path in sorted(out.rglob(f"*{EXTENSION}")):
                made.append(root / path.relative_to(out))
                shutil.move(path, made[-1])
        compiled.DIGEST.write_text(digest)
        return [*made, compiled.DIGEST]


def docstrings(sources: Iterable[str]) -> dict[str, str]:
    """Docstrings of modules, classes, functions and properties, by their names in the code of C.

    mypyc puts ``___`` between the parts of a name, and shortens that of a module to its last parts.
    """
    found = {}
    for source in sources:
        parts = source.removesuffix(".py").split("/")
        tree = ast.parse(Path(source).read_text())
        names: list[tuple[str, ast.Module | ast.ClassDef | ast.FunctionDef]] = [("", tree)]
        for node in tree.body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef):
                names.append((f"___{node.name}", node))
            if isinstance(node, ast.ClassDef):
                members = (each for each in node.body if isinstance(each, ast.FunctionDef))
                names += [(f"___{node.name}___{each.name}", each) for each in members]
        for name, node in names:
            text = ast.get_docstring(node)
            if text is not None:
                found |= {"___".join(parts[i:]) + name: text for i in range(len(parts))}
    return found


def with_docstrings(code: str, texts: Mapping[str, str]) -> str:
    """Code of mypyc in C with docstrings, which mypyc leaves out."""

    def literal(text: str) -> str:
        return "".join(f"\\{byte:03o}" for byte in text.encode())

    def behind_signature(found: re.Match[str]) -> str:
        return found[0].removesuffix('")') + literal(texts.get(found[1], "")) + '")'

    def of_property(found: re.Match[str]) -> str:
        text = texts.get(f"{found[2]}___{found[3]}")
        return found[0] if text is None else f'{found[1]}"{literal(text)}", NULL}}'

    def of_module(found: re.Match[str]) -> str:
        text = texts.get(found[1].replace(".", "___"))
        return found[0] if text is None else f'"{found[1]}",\n"{literal(text)}",'

    signature = r'PyDoc_STR\("(?:[^"\\]|\\.)*"\)'
    code = re.sub(rf"\bCPyPy_(\w+),[\sA-Z_|,]*{signature}", behind_signature, code)
    code = re.sub(
        rf"\bCPyType_(\w+?)_template_ = \{{[^}}]*?\.tp_doc = {signature}", behind_signature, code
    )
    getter = r"(\(getter\)(\w+?)_get_(\w+),\s*(?:\(setter\)\w+|NULL),\s*)NULL, NULL\}"
    code = re.sub(getter, of_property, code)
    return re.sub(r'"([\w.]+)",\s*NULL, /\* docstring \*/', of_module, code)


#: Runs in a process of its own: mypyc exits on errors in the sources.
_PROGRAM = """
from pathlib import Path

from hatch_build import docstrings, with_docstrings
from mypyc.build import mypycify
from setuptools import Distribution

extensions = mypycify({arguments}, opt_level="3", debug_level="0", target_dir={temporary!r})
texts = docstrings({sources!r})
for path in Path({temporary!r}).rglob("*.c"):
    path.write_text(with_docstrings(path.read_text(), texts))
for extension in extensions:  # calls between modules are direct, and may be inlined
    extension.extra_compile_args.append("-fvisibility=hidden")
command = Distribution({{"name": "core", "ext_modules": extensions}}).get_command_obj("build_ext")
command.build_lib, command.build_temp, command.parallel = {out!r}, {temporary!r}, True
command.ensure_finalized()
command.run()
"""


def _compiled(root: Path) -> ModuleType:
    """Import scheduler/compiled.py alone: dependencies of its package are missing here."""
    spec = importlib.util.spec_from_file_location("compiled", root / "scheduler/compiled.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
