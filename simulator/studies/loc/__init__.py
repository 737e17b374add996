"""Study of LOC: locality-aware allocation."""
