"""Compile redistribution/kernel.c when the project is installed, if there is a C compiler.

Without one the package is pure Python, and NumPy copies what the kernel would have copied.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOURCE, LIBRARY = "redistribution/kernel.c", "redistribution/_kernel.so"


class CompileKernel(BuildHookInterface):
    """Puts the shared library beside its source, for wheels and for editable installations."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile; leave no library behind where that is not possible."""
        if self.target_name != "wheel":
            return
        root = Path(self.root)
        (root / LIBRARY).unlink(missing_ok=True)
        compiler = shlex.split(os.environ.get("CC", "cc"))
        if os.name != "posix" or not compiler or shutil.which(compiler[0]) is None:
            self.app.display_warning("no C compiler: moves are copied by NumPy, more slowly")
            return
        new = root / f"{LIBRARY}.{os.getpid()}"
        command = [*compiler, "-std=c99", "-O3", "-shared", "-fPIC", "-o", new, root / SOURCE]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            new.unlink(missing_ok=True)
            self.app.display_warning(f"{SOURCE} not compiled:\n{done.stderr}")
            return
        new.rename(root / LIBRARY)  # a process that has the old one mapped keeps it
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["tag"] = f"py3-none-{platform}"  # loaded by ctypes: any Python will do
        build_data["pure_python"] = False
        build_data["artifacts"].append(LIBRARY)
