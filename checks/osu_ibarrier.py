"""MPI_Ibarrier beside computing, over all nodes (osu_ibarrier of the OSU micro-benchmarks, versions 4 to 7).

Run with default sizes and `tasks_per_node` ranks on each node.

Measured: `pure_comm` (us, the operation alone), `min_comm`, `max_comm`, `overall` and `compute` (us, of both together
and of the computing), `overlap` (%); there are no sizes.
"""

from hpcadmin.checklib import osu_checks

CHECK = osu_checks.group(
    "osu_ibarrier", "MPI non-blocking barrier over all nodes", __doc__ or "", load=False, seconds=5.0)
