"""Configuration of a service and machine files: fields, reading and checks."""
