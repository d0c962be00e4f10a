"""Time of MPI_Allreduce over all nodes (osu_allreduce of the OSU micro-benchmarks, versions 3 to 7).

Run with default sizes and `tasks_per_node` ranks on each node.

Measured: `avg_latency` (us, mean of the ranks; key values at 8 bytes and 1 MiB), `min_latency` and `max_latency`.
"""

from hpcadmin.checklib import osu_checks

CHECK = osu_checks.group("osu_allreduce", "MPI all-reduce over all nodes", __doc__ or "")
