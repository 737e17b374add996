"""Settings of a service and machine files: reading and checks."""
