"""Reduce to rank 0 over all GPUs of all nodes, one rank a GPU (nccl-tests reduce_perf, built with MPI).

The bus bandwidth is that of the slowest hop towards the root.

Each task of a node sees all GPUs that the step has there, and nccl-tests takes the one of its local rank. The data are
validated. Measured: `busbw` (GB/s; out of place at the largest size is what limits are for, all others are kept as a
curve), `algbw`, `time`, `avg_busbw`, `wrong_values` (expected: 0), `ranks` per node (expected: its GPUs), `transport`
(expected: RDMA where all nodes have it).
"""

from hpcadmin.checklib import nccl

CHECK = nccl.check("nccl_reduce", title="NCCL reduce over all GPUs", doc=__doc__ or "")
