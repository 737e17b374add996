"""The demonstration: one mixed workload of real MPI programs, run static and resizable."""
