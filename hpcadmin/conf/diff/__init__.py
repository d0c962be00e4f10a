"""Two configurations compared by what Slurm makes of them: what would change, for which nodes, why, and what it takes
until the change is in force. Pure functions."""
