"""The ranks of a job: what they agree on, what a resize ends, output and errors."""
