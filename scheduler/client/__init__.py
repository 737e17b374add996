"""Commands that start, query and stop a service."""
