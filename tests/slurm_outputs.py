"""What Slurm's commands print of jobs in trouble, in the formats of 22.05 to 26.05 that are asked for."""

# squeue -h -a -t all -o %i|%T|%r|%N|%k, of one job; what follows: waits, over, hopeless (somebody must act).
QUEUE = {
    "waits for room": ("7|PENDING|Resources||hpcadmin:R:1", False, False),
    "waits for its turn": ("7|PENDING|Priority||hpcadmin:R:1", False, False),
    "waits for a node that is away": ("7|PENDING|ReqNodeNotAvail, UnavailableNodes:n3||hpcadmin:R:1", False, False),
    "the same, 23.02 and later": ("7|PENDING|ReqNodeNotAvail, May be reserved for other job||c", False, False),
    "down, drained or reserved": ("7|PENDING|Nodes required for job are DOWN, DRAINED or reserved for jobs in higher "
                                  "priority partitions||c", False, False),
    "held by its user": ("7|PENDING|JobHeldUser||c", False, True),
    "held by an admin": ("7|PENDING|JobHeldAdmin||c", False, True),
    "prolog failed": ("7|PENDING|launch failed requeued held||c", False, True),
    "prolog failed, 24.11": ("7|PENDING|launch_failed_requeued_held||c", False, True),
    "requeued held": ("7|REQUEUE_HOLD|job requeued in held state||c", False, True),
    "reservation deleted": ("7|RESV_DEL_HOLD|ReservationDeleted||c", False, True),
    "special exit": ("7|SPECIAL_EXIT|job requeued in special exit state||c", False, True),
    "requeued by an admin": ("7|PENDING|BeginTime||c", False, False),
    "partition down": ("7|PENDING|PartitionDown||c", False, True),
    "partition too short": ("7|PENDING|PartitionTimeLimit||c", False, True),
    "boots its nodes": ("7|CONFIGURING|None|n[1-2]|c", False, False),
    "runs": ("7|RUNNING|None|n[1-2]|c", False, False),
    "suspended": ("7|SUSPENDED|None|n1|c", False, False),
    "cleans up": ("7|COMPLETING|None|n1|c", False, False),
    "done": ("7|COMPLETED|None|n1|c", True, False),
    "node died": ("7|NODE_FAIL|NodeDown|n1|c", True, False),
    "preempted": ("7|PREEMPTED|None|n1|c", True, False),
    "timed out": ("7|TIMEOUT|TimeLimit|n1|c", True, False),
    "out of memory": ("7|OUT_OF_MEMORY|OutOfMemory|n1|c", True, False),
    "cancelled": ("7|CANCELLED|None||c", True, False),
    "deadline": ("7|DEADLINE|DeadLine||c", True, False),
    "boot failed": ("7|BOOT_FAIL|None|n1|c", True, False),
    "raised to a signal": ("7|FAILED|RaisedSignal:9(Killed)|n1|c", True, False),
    "a state of the future": ("7|TELEPORTED|None|n1|c", True, False),
}

# sacct -X -n -P -o JobIDRaw,State,ExitCode,NodeList -> state, exit code
ACCOUNTED = {
    "7|COMPLETED|0:0|n[1-2]\n": ("COMPLETED", "0:0"),
    "7|CANCELLED by 1000|0:0|None assigned\n": ("CANCELLED by 1000", "0:0"),
    "7|NODE_FAIL|0:0|n1\n7|COMPLETED|0:0|n1\n": ("COMPLETED", "0:0"),
    "7|OUT_OF_MEMORY|0:125|n1\n": ("OUT_OF_MEMORY", "0:125"),
    "": ("", ""),
    "JobIDRaw|State|ExitCode|NodeList\n": ("", ""),
    "7|TIMEOUT|0:0\n": ("", ""),
}

# stderr of a command that got no answer; the text of each is of slurm_strerror or of the RPC layer.
NO_ANSWER = (
    "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation",
    "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)",
    "slurm_load_jobs error: Unable to contact slurm controller (connect failure)",
    "squeue: error: slurm_receive_msgs: [[head]:6817] failed: Zero Bytes were transmitted or received\n"
    "slurm_load_jobs error: Zero Bytes were transmitted or received",
    "slurm_load_jobs error: Transport endpoint is not connected",
    "sbatch: error: slurm_set_addr: Unable to resolve \"head\"\n"
    "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)",
    "sbatch: error: Batch job submission failed: Slurm backup controller in standby mode",
)
