"""The keys of every Slurm from 22.05 to 26.05, one module for each kind of file."""
