"""MPI latency of many pairs of ranks at once, between two nodes (osu_multi_lat of the OSU micro-benchmarks, versions 3
to 7).

Run with default sizes and `tasks_per_node` ranks on each node.

Measured: `latency` (us, one way, mean of the pairs), the key value at 8 bytes. Rank i talks to rank i + pairs.
"""

from hpcadmin.checklib import osu_checks

CHECK = osu_checks.pair(
    "osu_multi_lat", "MPI latency of many pairs", __doc__ or "", many=True, buffers=True, load=False)
