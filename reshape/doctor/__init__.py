"""Checks of the machine and its MPI installation, for `reshape doctor`."""
