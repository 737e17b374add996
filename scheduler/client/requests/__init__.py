"""How users write requests for jobs: options, keywords, scripts and files, up to the message."""
