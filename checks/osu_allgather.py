"""Time of MPI_Allgather over all nodes (osu_allgather of the OSU micro-benchmarks, versions 3 to 7).

Run with default sizes and `tasks_per_node` ranks on each node.

Measured: `avg_latency` (us, mean of the ranks; key values at 8 bytes and 1 MiB), `min_latency` and `max_latency`. Many
ranks end at a smaller size: the programs take 512 MiB at most over all ranks.
"""

from hpcadmin.checklib import osu_checks

CHECK = osu_checks.group("osu_allgather", "MPI all-gather over all nodes", __doc__ or "", seconds=30.0)
