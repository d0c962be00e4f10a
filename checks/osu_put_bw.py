"""Bandwidth of MPI_Put between two nodes (osu_put_bw of the OSU micro-benchmarks, versions 3 to 7).

Run with default sizes.

Measured: `bandwidth` (MB/s of 1e6 bytes), the key value at 4 MiB, other sizes as a curve.
"""

from hpcadmin.checklib import osu_checks

CHECK = osu_checks.pair("osu_put_bw", "MPI_Put bandwidth between two nodes", __doc__ or "")
