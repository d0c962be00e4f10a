"""Configuration files before the real slurmctld and slurmd, in namespaces of their own and without the hardware."""
