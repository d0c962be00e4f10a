"""MPI bandwidth between two nodes, both ways at once (osu_bibw of the OSU micro-benchmarks, versions 3 to 7).

Run with default sizes.

Measured: `bandwidth` (MB/s, 1e6 bytes a second, the sum of both directions), the key value at 4 MiB, other sizes as a
curve.
"""

from hpcadmin.checklib import osu_checks

CHECK = osu_checks.pair("osu_bibw", "MPI bandwidth between two nodes, both ways", __doc__ or "", buffers=True)
