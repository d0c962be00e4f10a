"""Exchange along the edges of a hypercube of all GPUs, one rank a GPU (nccl-tests hypercube_perf, built with MPI).

For numbers of ranks that are powers of two; the tool skips others. Each step pairs ranks twice as far apart.

Each task of a node sees all GPUs that the step has there, and nccl-tests takes the one of its local rank. The data are
validated. Measured: `busbw` (GB/s; out of place at the largest size is what limits are for, all others are kept as a
curve), `algbw`, `time`, `avg_busbw`, `wrong_values` (expected: 0), `ranks` per node (expected: its GPUs), `transport`
(expected: RDMA where all nodes have it).
"""

from hpcadmin.checklib import nccl

CHECK = nccl.check("nccl_hypercube", title="NCCL hypercube exchange over all GPUs", doc=__doc__ or "")
