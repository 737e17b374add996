"""Study of REDIR: scheduling with redirection."""
