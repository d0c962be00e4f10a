"""Time of MPI_Iallgatherv beside computing over all nodes (osu_iallgatherv of the OSU micro-benchmarks, versions 3
to 7).

Run with default sizes and `tasks_per_node` ranks on each node.

Measured: `pure_comm` (us, without computing; key values at 8 bytes and 1 MiB), `overall`, `compute` and `overlap`
(%, of computing and communication).
"""

from hpcadmin.checklib import osu_checks

CHECK = osu_checks.group("osu_iallgatherv", "MPI_Iallgatherv over all nodes", __doc__ or "")
