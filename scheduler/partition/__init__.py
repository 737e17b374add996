"""One partition of the core: its queue, its scheduling passes, and what each event changes."""
