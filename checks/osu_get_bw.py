"""Bandwidth of MPI_Get between two nodes (osu_get_bw of the OSU micro-benchmarks, versions 3 to 7).

Run with default sizes.

Measured: `bandwidth` (MB/s, 1e6 bytes a second), the key value at 4 MiB, other sizes as a curve.
"""

from hpcadmin.checklib import osu_checks

CHECK = osu_checks.pair("osu_get_bw", "MPI one-sided bandwidth between two nodes", __doc__ or "", buffers=True)
