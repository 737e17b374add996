"""Messages between applications, agents, clients and the service, and their transport."""
