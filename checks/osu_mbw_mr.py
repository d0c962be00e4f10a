"""MPI bandwidth and message rate of many pairs of ranks at once, between two nodes (osu_mbw_mr of the OSU
micro-benchmarks, versions 3 to 7).

Run with default sizes and `tasks_per_node` ranks on each node.

Measured: `bandwidth` (MB/s of 1e6 bytes, all pairs together, the key value at 4 MiB) and `msg_rate` (messages a
second). Rank i talks to rank i + pairs: the first half of the ranks is on the first node.
"""

from hpcadmin.checklib import osu_checks

CHECK = osu_checks.pair(
    "osu_mbw_mr", "MPI bandwidth and message rate of many pairs", __doc__ or "", many=True, buffers=True, seconds=20.0)
