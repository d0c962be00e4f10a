"""cgroup.conf."""

from __future__ import annotations

from hpcadmin.conf.keytable.kinds import OLDEST, Apply, Effect, Form, Key, table

_KMEM = (((23, 2), Effect.DEPRECATED), ((23, 11), Effect.FATAL))
_WITH_STEPS = "steps that run are in the old place: drain the nodes first"

KEYS = table(
    "cgroup.conf",
    {Form.TEXT: "EnableExtraControllers+25.05",
     Form.FLOAT: "AllowedRAMSpace AllowedSwapSpace MaxRAMPercent MaxSwapPercent",
     Form.BOOLEAN: """ConstrainCores ConstrainDevices ConstrainRAMSpace ConstrainSwapSpace IgnoreSystemd
                      IgnoreSystemdOnFailure SignalChildrenProcesses+23.11""",
     Form.UINT64: "MemorySwappiness MinRAMSpace SystemdTimeout+24.05"},
    Key("CgroupPlugin", note=_WITH_STEPS),
    Key("CgroupMountpoint", note=_WITH_STEPS),
    Key("CgroupSlice", (25, 11), note=_WITH_STEPS),
    Key("CgroupJobIdPaths", (26, 5), note="from 26.05.2; 26.05.0 and 26.05.1 do not start with it", form=Form.BOOLEAN),
    Key("EnableControllers", (23, 2), note="from 23.02.1; 23.02.0 does not start with it", form=Form.BOOLEAN),
    Key("RootOwnedCgroups", (23, 2), (((23, 11), Effect.FATAL),), form=Form.BOOLEAN),
    Key("AllowedKmemSpace", changes=_KMEM, form=Form.FLOAT),
    Key("ConstrainKmemSpace", changes=_KMEM, form=Form.BOOLEAN),
    Key("MaxKmemPercent", changes=_KMEM, form=Form.FLOAT),
    Key("MinKmemSpace", changes=_KMEM, form=Form.UINT64),
    Key("CgroupAutomount", changes=(((23, 11), Effect.ERROR),), form=Form.BOOLEAN),
    Key("AllowedDevicesFile", changes=((OLDEST, Effect.IGNORED),), note="a warning line from 23.02 on"),
    Key("CgroupReleaseAgentDir", changes=((OLDEST, Effect.FATAL),)),
    Key("MemoryLimitEnforcement", changes=((OLDEST, Effect.IGNORED),), form=Form.BOOLEAN),
    Key("MemoryLimitThreshold", changes=((OLDEST, Effect.IGNORED),), form=Form.FLOAT),
    Key("TaskAffinity", changes=((OLDEST, Effect.FATAL),), instead="TaskPlugin=task/cgroup,task/affinity in slurm.conf",
        form=Form.BOOLEAN),
    Key("CgroupSubsystems", changes=((OLDEST, Effect.FATAL),)),
    always={Apply.RESTART_SLURMD: """CgroupMountpoint CgroupPlugin CgroupSlice IgnoreSystemd IgnoreSystemdOnFailure
                                     SystemdTimeout"""},
)
