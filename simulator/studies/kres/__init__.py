"""Study of KRES: balancing K resources."""
