"""All-to-all over all GPUs of all nodes, one rank a GPU (nccl-tests alltoall_perf, built with MPI).

Every GPU sends to every other: the test that loads the switches' upper levels most. Between nodes its bus bandwidth
is what the ports give each GPU, far below an all-reduce's. In place the tool does not check the data.

Each task of a node sees all GPUs that the step has there, and nccl-tests takes the one of its local rank. The data are
validated. Measured: `busbw` (GB/s; out of place at the largest size is what limits are for, all others are kept as a
curve), `algbw`, `time`, `avg_busbw`, `wrong_values` (expected: 0), `ranks` per node (expected: its GPUs), `transport`
(expected: RDMA where all nodes have it).
"""

from hpcadmin.checklib import nccl

CHECK = nccl.check("nccl_alltoall", title="NCCL all-to-all over all GPUs", doc=__doc__ or "")
