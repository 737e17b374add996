"""What users run and import: commands, the Python client, pages, and runs on trial."""
