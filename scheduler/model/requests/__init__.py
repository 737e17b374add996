"""Parts of requests that have a text form of their own: conditions and dependencies."""
