"""Plans: which rank sends which elements to which other rank. Pure, without MPI."""
