"""hpcadmin: discover, configure, prove and keep healthy a Slurm cluster."""

__version__ = "0.1.0"
