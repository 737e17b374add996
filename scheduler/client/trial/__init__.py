"""`reshape try`: runs of one program with resizes on purpose, without a service."""
