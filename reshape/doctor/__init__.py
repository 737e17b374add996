"""Probes of the machine and its MPI, for `reshape doctor`."""
