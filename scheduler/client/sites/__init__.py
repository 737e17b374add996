"""Commands that act on several services, without a central server."""
