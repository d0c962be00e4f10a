"""slurm.conf: keys of NodeName, NodeSet, DownNodes, FrontendName and PowerAction lines."""

from __future__ import annotations

from hpcadmin.conf.keytable.kinds import OLDEST, Apply, Effect, Form, Key, table

_NODE = table(
    "NodeName",
    {Form.TEXT: """NodeName BcastAddr CpuBind CPUSpecList Features Gres GresConf+25.11 NodeAddr NodeHostname
                   Parameters+25.11 Port Reason State SuspendTime+26.05 Topology+25.05 TRESWeights""",
     Form.UINT16: """Boards CoreSpecCount CoresPerSocket CPUs RestrictedCoresPerGPU+24.05 Sockets SocketsPerBoard
                     ThreadsPerCore""",
     Form.UINT64: "MemSpecLimit RealMemory", Form.UINT32: "TmpDisk Weight"},
    Key("Feature", alias="Features"),
    Key("Procs", alias="CPUs", form=Form.UINT16),
    always={Apply.RESTART_ALL: "Port"},
    before={Apply.RESTART_ALL: """
        NodeName BcastAddr Boards CoreSpecCount CoresPerSocket CPUs CPUSpecList Gres MemSpecLimit NodeAddr NodeHostname
        Procs RealMemory RestrictedCoresPerGPU Sockets SocketsPerBoard ThreadsPerCore TmpDisk"""},
)
KEYS = (
    *_NODE,
    *table("NodeSet", {Form.TEXT: "NodeSet Feature Nodes"}),
    *table("DownNodes", {Form.TEXT: "DownNodes Reason State"}),
    *table("PowerAction", {Form.TEXT: "PowerAction+26.05 Location+26.05 Program+26.05"}),
    *table("FrontendName", {Form.TEXT: """AllowGroups-25.05 AllowUsers-25.05 DenyGroups-25.05
                                          DenyUsers-25.05 FrontendAddr-25.05 Reason-25.05 State-25.05""",
                            Form.UINT16: "Port-25.05"},
           Key("FrontendName", changes=((OLDEST, Effect.FATAL),),
               note="only builds of 22.05 to 24.11 with --enable-front-end have it")),
)
