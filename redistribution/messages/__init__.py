"""Exchange of planned transfers over MPI."""
