"""The subcommands that simulate."""
