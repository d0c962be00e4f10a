"""RDMA read bandwidth between two nodes (perftest's ib_read_bw, a server on one and a client on the other).

The client reads the memory of the server: requests go one way, the data the other.
Devices, GIDs, GPU memory and what is refused: as with `ib_write_bw`.

Measured: `bandwidth` (Gb/s, average over `seconds`), with the device as rail and the link as transport; and what the
table has, in its own unit (`bw_average`, `bw_peak` where it was measured, `msg_rate`).
"""

from hpcadmin.checklib import perftest_run

CHECK = perftest_run.check("ib_read_bw", "RDMA read bandwidth between two nodes", __doc__ or "")
