"""Routes between two layouts: which rank sends which elements to which rank. Without MPI."""
