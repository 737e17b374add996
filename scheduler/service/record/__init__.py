"""What the service records: journal, clock anchor, explanations, errors of policies."""
