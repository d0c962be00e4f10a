"""Configuration files that exist, judged: what Slurm refuses, what it takes otherwise than meant, what is not as the
hardware is. A rule is a function in a file of `rules`; adding a file there adds its rules."""
