"""Time of MPI_Barrier over all nodes (osu_barrier of the OSU micro-benchmarks, versions 3 to 7).

Run with default sizes and `tasks_per_node` ranks on each node.

Measured: `avg_latency` (us, mean of the ranks), `min_latency` and `max_latency`; there are no sizes.
"""

from hpcadmin.checklib import osu_checks

CHECK = osu_checks.group("osu_barrier", "MPI barrier over all nodes", __doc__ or "", load=False, seconds=5.0)
