"""The gate: the process that accepts TCP connections in front of a service."""
