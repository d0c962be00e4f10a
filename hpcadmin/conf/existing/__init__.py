"""Configuration files that exist, read as Slurm reads them, with every line kept: texts to statements, statements to
what is in force. Pure functions; which files there are is told by a function that the caller gives."""
