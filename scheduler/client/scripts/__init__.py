"""What a job script calls to start steps: `reshape run` and `mpiexec`."""
