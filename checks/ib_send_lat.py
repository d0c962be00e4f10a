"""RDMA send latency between two nodes (perftest's ib_send_lat, a server on one and a client on the other).

The client sends and waits for the message of the server: half of the round trip.
Devices, GIDs, GPU memory and what is refused: as with `ib_write_bw`.

Measured: `t_typical` (us, the median of `iterations` messages of `size` bytes), with the device as rail and the link as
transport; beside it `t_min`, `t_max`, `t_avg`, `t_stdev`, `p99` and `p99_9`.
"""

from hpcadmin.checklib import perftest_run

CHECK = perftest_run.check("ib_send_lat", "RDMA send latency between two nodes", __doc__ or "", seconds=3.0)
