"""slurm.conf: keys of PartitionName lines."""

from __future__ import annotations

from hpcadmin.conf.keytable.kinds import OLDEST, Effect, Form, Key, table

KEYS = table(
    "PartitionName",
    {Form.TEXT: """PartitionName AllocNodes AllowAccounts AllowGroups AllowQos Alternate CpuBind DenyAccounts
                   DenyQos Exclusive+26.05 Nodes OverSubscribe OverTimeLimit PreemptMode QOS
                   SelectTypeParameters State SuspendTime Topology+25.05 TRESBillingWeights""",
     Form.TIME: "DefaultTime MaxTime",
     Form.BOOLEAN: "Default DisableRootJobs Hidden LLN PowerDownOnIdle+23.02 ReqResv RootOnly",
     Form.UINT64: "DefCPUPerGPU DefMemPerCPU DefMemPerGPU DefMemPerNode MaxMemPerCPU MaxMemPerNode",
     Form.UINT32: "GraceTime MaxCPUsPerNode MaxCPUsPerSocket+23.02 MaxNodes MinNodes",
     Form.UINT16: "PriorityJobFactor PriorityTier ResumeTimeout SuspendTimeout"},
    Key("Shared", changes=((OLDEST, Effect.DEPRECATED),), instead="OverSubscribe"),
    Key("Priority", changes=((OLDEST, Effect.DEPRECATED),), instead="PriorityJobFactor and PriorityTier",
        form=Form.UINT16),
    Key("ExclusiveUser", changes=(((26, 5), Effect.DEPRECATED),), instead="Exclusive=USER", form=Form.BOOLEAN),
    Key("ExclusiveTopo", (24, 5), (((26, 5), Effect.DEPRECATED),), "Exclusive=TOPO", form=Form.BOOLEAN),
)
