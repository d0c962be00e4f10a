"""Rate of RDMA atomics between two nodes (perftest's ib_atomic_bw; fetch-and-add of 8 bytes).

A figure of the message rate, none of the link's bandwidth. Devices, GIDs and what is refused: as with `ib_write_bw`.

Measured: `bandwidth` (Gb/s), `msg_rate` (million a second), `bw_average` and `bw_peak` in the table's own unit.
"""

from hpcadmin.checklib import perftest_run

CHECK = perftest_run.check("ib_atomic_bw", "Rate of RDMA atomics between two nodes", __doc__ or "")
