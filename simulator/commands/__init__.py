"""The subcommands that simulate."""

import os

# NumPy's OpenBLAS starts a thread for each processor, and no simulation has work for them: they
# only wait actively for a while.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
