"""Run a program as ``python`` does; at a resize point it waits a minute for an answer.

Otherwise a program continues without an answer after a quarter of a second. A test that drives it
on a busy machine would then not know in which iteration it is.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

from reshape.wire import link

link.HELLO_LIMIT_S = link.ANSWER_LIMIT_S = 60.0

how, *words = sys.argv[1:]
if how == "-m":
    sys.argv = words
    runpy.run_module(words[0], run_name="__main__", alter_sys=True)
elif how == "-c":
    sys.argv = ["-c", *words[1:]]
    exec(words[0])
else:
    sys.argv = [how, *words]
    sys.path[0] = str(Path(how).parent)
    runpy.run_path(how, run_name="__main__")
