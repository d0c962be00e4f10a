"""Send to the next and receive from the previous GPU, around all GPUs of all nodes (nccl-tests sendrecv_perf, MPI).

The slowest link of the ring sets the time. In place the tool does not check the data.

Each task of a node sees all GPUs that the step has there, and nccl-tests takes the one of its local rank. The data are
validated. Measured: `busbw` (GB/s; out of place at the largest size is what limits are for, all others are kept as a
curve), `algbw`, `time`, `avg_busbw`, `wrong_values` (expected: 0), `ranks` per node (expected: its GPUs), `transport`
(expected: RDMA where all nodes have it).
"""

from hpcadmin.checklib import nccl

CHECK = nccl.check("nccl_sendrecv", title="NCCL send and receive around a ring of all GPUs", doc=__doc__ or "")
