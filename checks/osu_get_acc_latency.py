"""Latency of MPI_Get_accumulate between two nodes (osu_get_acc_latency of the OSU micro-benchmarks, versions 3 to 7).

Run with default sizes.

Measured: `latency` (us), the key value at 8 bytes, other sizes as a curve.
"""

from hpcadmin.checklib import osu_checks

CHECK = osu_checks.pair("osu_get_acc_latency", "MPI_Get_accumulate latency between two nodes", __doc__ or "")
