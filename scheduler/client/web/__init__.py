"""Pages that show runs: a server beside the service, and the same pages as single files."""
