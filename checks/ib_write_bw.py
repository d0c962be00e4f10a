"""RDMA write bandwidth between two nodes (perftest's ib_write_bw, a server on one and a client on the other).

Uses the port of the test's layout, else the one that `device` names ("mlx5_0", or "mlx5_0,mlx5_1" for server and
client), else each node's first that is up; for RoCE the GID of version 2 with an IPv4 address, unless `gid_index` gives
another. Both sides are bound to the port's NUMA node where there is numactl. `gpu` = "near" sends from memory of the
GPU at the port ("cuda:0": of that one), which both sides must say. They must end well, agree on the value and name the
device that was asked for; two ends on one port are refused, but in a loopback.

Measured: `bandwidth` (Gb/s, one way, average over `seconds`), with the device as rail and the link as transport; and
what the table has, in its own unit (`bw_average`, `bw_peak` where it was measured, `msg_rate`).
"""

from hpcadmin.checklib import perftest_run

CHECK = perftest_run.check("ib_write_bw", "RDMA write bandwidth between two nodes", __doc__ or "")
