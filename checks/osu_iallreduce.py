"""MPI_Iallreduce beside computing, over all nodes (osu_iallreduce of the OSU micro-benchmarks, versions 4 to 7).

Run with default sizes and `tasks_per_node` ranks on each node.

Measured: `pure_comm` (us, the operation alone; key values at 8 bytes and 1 MiB), `min_comm`, `max_comm`, `overall` and
`compute` (us, of both together and of the computing), `overlap` (%).
"""

from hpcadmin.checklib import osu_checks

CHECK = osu_checks.group("osu_iallreduce", "MPI non-blocking all-reduce over all nodes", __doc__ or "", seconds=30.0)
