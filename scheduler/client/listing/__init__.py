"""Commands that list jobs: queue and history."""
