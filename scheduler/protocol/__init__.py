"""Messages of commands, agents and the machine, and the client that commands use."""
