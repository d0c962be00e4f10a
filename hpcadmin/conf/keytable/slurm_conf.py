"""slurm.conf: the simple settings and the first keys of its other statements."""

from __future__ import annotations

from hpcadmin.conf.keytable.kinds import OLDEST, Apply, Effect, Form, Key, Version, table

FILE = "slurm.conf"
# Statements that begin with a key of their own and have their own keys.
STATEMENTS = ("NodeName", "PartitionName", "NodeSet", "DownNodes", "FrontendName", "PowerAction")

_TEXT = """
    AccountingStorageBackupHost AccountingStorageEnforce AccountingStorageExternalHost AccountingStorageHost
    AccountingStorageParameters AccountingStoragePass AccountingStorageTRES AccountingStorageType AccountingStoreFlags
    AcctGatherEnergyType AcctGatherFilesystemType AcctGatherInterconnectType AcctGatherProfileType AuthAltParameters
    AuthAltTypes AuthInfo AuthType BcastExclude BcastParameters BurstBufferType CertgenParameters+25.05
    CertgenType+25.05 CertmgrParameters+24.11 CertmgrType+24.11 CliFilterParameters+25.11 CliFilterPlugins ClusterName
    CommunicationParameters CpuFreqDef CpuFreqGovernors CredType DataParserParameters+24.11 DebugFlags
    DependencyParameters EnforcePartLimits FederationParameters GpuFreqDef GresTypes HashPlugin+24.05
    HealthCheckNodeState HealthCheckProgram HttpParserType+25.11 InteractiveStepOptions JobAcctGatherFrequency
    JobAcctGatherParams JobAcctGatherType JobCompHost JobCompLoc JobCompParams JobCompPass JobCompPassScript+25.11
    JobCompType JobCompUser JobSubmitPlugins LaunchParameters LicenseParameters+26.05 Licenses LogTimeFormat MailDomain
    MailProg MCSParameters MCSPlugin MetricsAuthUsers+26.05 MetricsParameters+26.05 MetricsType+25.11 MpiDefault
    MpiParams NamespaceType+25.11 NodeFeaturesPlugins PluginDir PlugStackConfig PreemptMode
    PreemptParameters+23.02 PreemptType PrEpParameters PrEpPlugins
    PriorityFlags PriorityParameters PrioritySiteFactorParameters PrioritySiteFactorPlugin PriorityType
    PriorityUsageResetPeriod PriorityWeightTRES PrivateData ProctrackType PrologFlags PropagateResourceLimits
    PropagateResourceLimitsExcept RebootProgram ReconfigFlags RequeueExit RequeueExitHold ResumeFailProgram
    ResumeProgram ResvEpilog ResvProlog SchedulerParameters SchedulerType ScronParameters SelectType
    SelectTypeParameters SlurmctldAddr SlurmctldDebug SlurmctldHttpAuthParameters+26.05 SlurmctldLogFile
    SlurmctldParameters SlurmctldPidFile SlurmctldPlugstack-23.02 SlurmctldPrimaryOffProg
    SlurmctldPrimaryOnProg SlurmctldSyslogDebug SlurmdDebug SlurmdHttpAuthParameters+26.05 SlurmdLogFile
    SlurmdParameters SlurmdPidFile SlurmdSpoolDir SlurmdSyslogDebug SlurmdUser SlurmSchedLogFile SlurmUser SrunEpilog
    SrunPortRange SrunProlog StateSaveLocation SuspendExcNodes SuspendExcParts SuspendExcStates+23.02 SuspendProgram
    SuspendTime SwitchParameters SwitchType TaskEpilog TaskPlugin TaskPluginParam TaskProlog TLSParameters+24.05
    TLSType+24.05 TmpFS TopologyParam TopologyPlugin UnkillableStepProgram UrlParserType+25.11 X11Parameters
"""
_UINT16 = """
    AccountingStoragePort AcctGatherNodeFreq BatchStartTimeout CompleteWait EioTimeout EpilogTimeout+25.05
    FairShareDampeningFactor GroupUpdateForce GroupUpdateTime HealthCheckInterval HealthCheckTimeout+26.05
    InactiveLimit JobFileAppend JobRequeue KillOnBadExit KillWait MaxTasksPerNode MessageTimeout OverTimeLimit
    PrologEpilogTimeout PrologTimeout+25.05 PropagatePrioProcess ResumeRate ResumeTimeout ResvOverRun ReturnToService
    SchedulerTimeSlice SlurmctldTimeout SlurmdTimeout SlurmSchedLogLevel SuspendRate SuspendTimeout TCPTimeout
    TreeWidth UnkillableStepTimeout VSizeFactor WaitTime
"""
_UINT32 = """
    EpilogMsgTime FirstJobId JobCompPort MaxArraySize MaxBatchRequeue+23.02 MaxDBDMsgs MaxJobCount MaxJobId
    MaxNodeCount MaxStepCount MinJobAge PriorityWeightAge PriorityWeightAssoc PriorityWeightFairshare
    PriorityWeightJobSize PriorityWeightPartition PriorityWeightQOS SlurmdPort
"""
_TIME = "PreemptExemptTime PriorityCalcPeriod PriorityDecayHalfLife PriorityMaxAge"
_UINT64 = "DefCPUPerGPU DefMemPerCPU DefMemPerGPU DefMemPerNode MaxMemPerCPU MaxMemPerNode"
_BOOLEAN = "AllowSpecResourcesUsage DisableRootJobs PriorityFavorSmall TrackWCKey UsePAM"

# No release from 22.05 on has these; older files still do.
_BEFORE = """
    CacheGroups CheckpointType ChosLoc DefaultStorageHost DefaultStorageLoc DefaultStoragePass DefaultStoragePort
    DefaultStorageType DefaultStorageUser DynAllocPort JobCheckpointDir Layouts MemLimitEnforce MsgAggregationParams
    SchedulerPort SchedulerRootFilter SlurmdPlugstack
"""
_INSTEAD_OF_OLD = {"MemLimitEnforce": "JobAcctGatherParams=OverMemoryKill"}

_ALWAYS = {
    Apply.JOBS_LOST: "SelectType SwitchType",
    # What daemons listen on, who they are and how they know each other is not handed to a new process.
    Apply.RESTART_ALL: """
        AuthAltTypes AuthInfo AuthType ClusterName SlurmctldPort SlurmdPort SlurmdUser SlurmUser TLSType""",
    Apply.RESTART_SLURMCTLD: "SlurmctldPidFile StateSaveLocation",
    Apply.RESTART_SLURMD: "SlurmdPidFile SlurmdSpoolDir",
}
# Plug-ins are loaded, and tables sized, when a daemon starts.
_BEFORE_23_11 = {
    Apply.RESTART_ALL: """
        AccountingStorageType AcctGatherEnergyType AcctGatherFilesystemType AcctGatherInterconnectType
        AcctGatherProfileType CredType GresTypes JobAcctGatherType JobContainerType NodeFeaturesPlugins NodeName
        PluginDir ProctrackType RoutePlugin TaskPlugin TopologyPlugin""",
    Apply.RESTART_SLURMCTLD: """
        AccountingStorageEnforce BurstBufferType JobCompType MaxJobCount MaxNodeCount MCSPlugin PowerPlugin
        PrioritySiteFactorPlugin PriorityType SchedulerType SelectTypeParameters SlurmctldHost SlurmctldParameters""",
    Apply.RESTART_SLURMD: "CoreSpecPlugin SlurmdParameters",
}


def _always(effect: Effect) -> tuple[tuple[Version, Effect], ...]:
    return ((OLDEST, effect),)


def _old(name: str, instead: str, note: str = "", form: Form = Form.TEXT) -> Key:
    return Key(name, changes=_always(Effect.DEPRECATED), instead=instead, note=note, form=form)


_STORIES = (
    # First keys of statements.
    Key("NodeName", several=OLDEST, note="adding and removing nodes"),
    Key("PartitionName", several=OLDEST,
        note="jobs of a partition that is taken out of the file are cancelled"),
    Key("NodeSet", several=OLDEST),
    Key("DownNodes", several=OLDEST),
    Key("PowerAction", (26, 5), several=(26, 5)),
    Key("FrontendName", changes=_always(Effect.FATAL), several=OLDEST,
        note="only builds of 22.05 to 24.11 with --enable-front-end have it"),
    Key("SlurmctldHost", several=OLDEST),
    # Several lines add up since 24.05.
    *(Key(name, several=(24, 5)) for name in ("Epilog", "EpilogSlurmctld", "Prolog", "PrologSlurmctld")),
    # Names that have changed.
    _old("ControlMachine", "SlurmctldHost", "ignored with an error line where SlurmctldHost is set"),
    _old("ControlAddr", "SlurmctldHost=HOST(ADDRESS)", "ignored with an error line where SlurmctldHost is set"),
    _old("BackupController", "a second SlurmctldHost", "ignored with an error line where SlurmctldHost is set"),
    _old("BackupAddr", "SlurmctldHost=HOST(ADDRESS)", "ignored with an error line where SlurmctldHost is set"),
    _old("AcctGatherInfinibandType", "AcctGatherInterconnectType"),
    _old("CryptoType", "CredType"),
    _old("SbcastParameters", "BcastParameters", "slurmctld writes an error line"),
    _old("KeepAliveTime", "CommunicationParameters=keepalivetime=N", "slurmctld writes an error line", Form.UINT32),
    Key("JobContainerType", changes=(((25, 11), Effect.DEPRECATED),), instead="NamespaceType"),
    Key("RoutePlugin", changes=(((23, 11), Effect.DEPRECATED),), instead="TopologyParam=RouteTree"),
    # Gone: the daemon says so and does not start.
    Key("AccountingStorageLoc", changes=_always(Effect.FATAL), note="StorageLoc of slurmdbd.conf names the database"),
    Key("AccountingStoreJobComment", changes=_always(Effect.FATAL), instead="AccountingStoreFlags=job_comment",
        form=Form.BOOLEAN),
    Key("SallocDefaultCommand", changes=_always(Effect.FATAL), instead="LaunchParameters=use_interactive_step"),
    Key("FastSchedule", changes=_always(Effect.ERROR), form=Form.UINT16,
        instead="SlurmdParameters=config_overrides (for FastSchedule=2)", note="any other value than 1 is fatal"),
    # Gone: an error line.
    Key("AccountingStorageUser", changes=(((25, 11), Effect.ERROR),),
        note="StorageUser of slurmdbd.conf names the database user"),
    Key("CoreSpecPlugin", changes=(((24, 5), Effect.ERROR),)),
    Key("ExtSensorsFreq", changes=(((23, 11), Effect.ERROR),), form=Form.UINT16),
    Key("ExtSensorsType", changes=(((23, 11), Effect.ERROR),)),
    Key("GetEnvTimeout", changes=(((25, 5), Effect.ERROR),), form=Form.UINT16),
    Key("JobCredentialPrivateKey", changes=(((23, 11), Effect.ERROR),)),
    Key("JobCredentialPublicCertificate", changes=(((23, 11), Effect.ERROR),)),
    Key("PowerParameters", changes=(((24, 5), Effect.ERROR),)),
    Key("PowerPlugin", changes=(((24, 5), Effect.ERROR),)),
    Key("SchedulerAuth", changes=((OLDEST, Effect.ERROR), ((24, 5), Effect.FATAL))),
    # Read, and used for nothing.
    Key("BurstBufferParameters", changes=_always(Effect.IGNORED), instead="burst_buffer.conf"),
    Key("LaunchType", changes=(((23, 2), Effect.IGNORED),)),
    # What else must be known before a change.
    Key("ClusterName", note="slurmctld refuses another name until StateSaveLocation/clustername is removed, and from "
                            "23.11 on a reconfiguration with it ends slurmctld; slurmdbd keeps jobs and associations "
                            "by the cluster's name"),
    Key("StateSaveLocation", note="all jobs are lost unless the folder is moved while slurmctld is stopped"),
    Key("SlurmdSpoolDir", note="slurmd loses the steps that run: drain the nodes first"),
    *(Key(name, changes=_always(Effect.FATAL), instead=_INSTEAD_OF_OLD.get(name, "")) for name in _BEFORE.split()),
)

KEYS = table(FILE, {Form.TEXT: _TEXT, Form.UINT16: _UINT16, Form.UINT32: _UINT32, Form.UINT64: _UINT64,
                    Form.BOOLEAN: _BOOLEAN, Form.TIME: _TIME, Form.PORTS: "SlurmctldPort"}, *_STORIES,
             before=_BEFORE_23_11, always=_ALWAYS)
