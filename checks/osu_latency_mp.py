"""MPI latency with forked processes on both sides between two nodes (osu_latency_mp of the OSU micro-benchmarks,
versions 3 to 7).

Run with default sizes.

Measured: `latency` (us), the key value at 8 bytes, other sizes as a curve.
"""

from hpcadmin.checklib import osu_checks

CHECK = osu_checks.pair("osu_latency_mp", "MPI latency with forked processes between two nodes", __doc__ or "")
