"""Bandwidth of MPI_Put in both directions at once between two nodes (osu_put_bibw of the OSU micro-benchmarks,
versions 3 to 7).

Run with default sizes.

Measured: `bandwidth` (MB/s of 1e6 bytes), the key value at 4 MiB, other sizes as a curve, the sum of both
directions.
"""

from hpcadmin.checklib import osu_checks

CHECK = osu_checks.pair("osu_put_bibw", "MPI_Put bandwidth both ways between two nodes", __doc__ or "")
