"""MPI latency between two nodes with several threads (osu_latency_mt of the OSU micro-benchmarks, versions 3 to 7).

Run with default sizes.

Measured: `latency` (us, one way), the key value at 8 bytes, other sizes as a curve.
"""

from hpcadmin.checklib import osu_checks

CHECK = osu_checks.pair(
    "osu_latency_mt", "MPI latency with threads between two nodes", __doc__ or "", buffers=True, load=False)
