"""Latency of RDMA atomics between two nodes (perftest's ib_atomic_lat; fetch-and-add of 8 bytes).

A whole round trip, measured at the client alone. Devices, GIDs and what is refused: as with `ib_write_bw`.

Measured: `t_typical` (us, the median of `iterations`); beside it `t_min`, `t_max`, `t_avg`, `t_stdev`, `p99`, `p99_9`.
"""

from hpcadmin.checklib import perftest_run

CHECK = perftest_run.check("ib_atomic_lat", "Latency of RDMA atomics between two nodes", __doc__ or "", seconds=3.0)
