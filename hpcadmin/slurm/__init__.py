"""Slurm behind one interface: states, submission, and the scripts that its jobs run."""
