"""What the service records: journal, explanations, errors of policies."""
