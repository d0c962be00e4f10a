"""RDMA write bandwidth between two nodes (perftest's ib_write_bw, a server on one and a client on the other).

Uses the device that `device` names ("mlx5_0", or "mlx5_0,mlx5_1" for server and client), else each node's first, and
for RoCE the GID that `gid_index` gives. `gpu` = "cuda:0" sends from GPU memory. Both sides must end well, agree on the
value and name the device that was asked for; two ends on one port (loopback) are refused.

Measured: `bandwidth` (Gb/s, one way, average over `seconds`), with the device as rail and the link as transport; and
what the table has, in its own unit (`bw_average`, `bw_peak` where it was measured, `msg_rate`).
"""

from hpcadmin.checklib import perftest_run

CHECK = perftest_run.check("ib_write_bw", "RDMA write bandwidth between two nodes", __doc__ or "")
