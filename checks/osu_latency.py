"""MPI latency between two nodes (osu_latency of the OSU micro-benchmarks, versions 3 to 7).

Run with default sizes.

Measured: `latency` (us, one way), the key value at 8 bytes, other sizes as a curve.
"""

from hpcadmin.checklib import osu_checks

CHECK = osu_checks.pair(
    "osu_latency", "MPI latency between two nodes", __doc__ or "", buffers=True, load=False, seconds=8.0)
