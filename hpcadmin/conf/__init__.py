"""Slurm's configuration files from an inventory and the site's file: pure functions, every line with its reason."""
