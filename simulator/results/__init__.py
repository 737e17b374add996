"""What becomes of a schedule: tables, traces for other tools, pictures; one module for each."""
