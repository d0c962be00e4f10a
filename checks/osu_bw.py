"""MPI bandwidth between two nodes, one way (osu_bw of the OSU micro-benchmarks, versions 3 to 7).

Run with default sizes.

Measured: `bandwidth` (MB/s, 1e6 bytes a second), the key value at 4 MiB, other sizes as a curve.
"""

from hpcadmin.checklib import osu_checks

CHECK = osu_checks.pair("osu_bw", "MPI bandwidth between two nodes", __doc__ or "", buffers=True, seconds=8.0)
