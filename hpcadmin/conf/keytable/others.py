"""The smaller files: acct_gather.conf, job_container.conf, namespace.yaml, mpi.conf, oci.conf, helpers.conf, …"""

from __future__ import annotations

from hpcadmin.conf.keytable.kinds import Apply, Effect, Form, Key, table

_IPMI = ("acct_gather_energy/ipmi",)
_IPMI_OR_XCC = ("acct_gather_energy/ipmi", "acct_gather_energy/xcc")
_OFED = ("acct_gather_interconnect/ofed",)
_HDF5 = ("acct_gather_profile/hdf5",)
_INFLUX = ("acct_gather_profile/influxdb",)


def _gather(forms: dict[Form, str], *more: Key, needs: tuple[str, ...]) -> tuple[Key, ...]:
    """Keys of acct_gather.conf: a daemon knows only those of the plug-ins that slurm.conf names."""
    return table("acct_gather.conf", forms, *more, needs=needs, apply=Apply.RESTART_SLURMD)


_ACCT_GATHER = (
    *_gather({Form.BOOLEAN: "EnergyIPMICalcAdjustment",
              Form.UINT32: """EnergyIPMIAuthenticationType EnergyIPMICipherSuiteId EnergyIPMIDisableAutoProbe
                              EnergyIPMIDriverAddress EnergyIPMIDriverType EnergyIPMIFrequency EnergyIPMIPrivilegeLevel
                              EnergyIPMIProtocolVersion EnergyIPMIRegisterSpacing EnergyIPMIRetransmissionTimeout
                              EnergyIPMISessionTimeout EnergyIPMITimeout EnergyIPMIWorkaroundFlags""",
              Form.TEXT: "EnergyIPMIDriverDevice EnergyIPMIPassword EnergyIPMIUsername"}, needs=_IPMI_OR_XCC),
    *_gather({Form.BOOLEAN: """EnergyIPMIAssumeBmcOwner EnergyIPMIBridgeSensors EnergyIPMIDiscreteReading
                               EnergyIPMIEntitySensorNames EnergyIPMIIgnoreNonInterpretableSensors
                               EnergyIPMIIgnoreScanningDisabled EnergyIPMIInterpretOemData EnergyIPMIRereadSdrCache
                               EnergyIPMISharedSensors""",
              Form.UINT32: "EnergyIPMIk_g_len",
              Form.TEXT: "EnergyIPMIk_g EnergyIPMIPowerSensors EnergyIPMIVariable"}, needs=_IPMI),
    *_gather({Form.BOOLEAN: "EnergyXCCFake"}, needs=("acct_gather_energy/xcc",)),
    *_gather({Form.UINT32: "InfinibandOFEDPort InterconnectOFEDPort"}, needs=_OFED),
    *_gather({Form.TEXT: "SysfsInterfaces"}, needs=("acct_gather_interconnect/sysfs",)),
    *_gather({Form.TEXT: "ProfileHDF5Default ProfileHDF5Dir"}, needs=_HDF5),
    *_gather({Form.TEXT: """ProfileInfluxDBDatabase ProfileInfluxDBDefault ProfileInfluxDBExtraTags+26.05
                            ProfileInfluxDBFlags+26.05 ProfileInfluxDBHost ProfileInfluxDBPass ProfileInfluxDBRTPolicy
                            ProfileInfluxDBUser""",
              Form.UINT32: "ProfileInfluxDBFrequency+25.11 ProfileInfluxDBTimeout+23.02"}, needs=_INFLUX),
)

# From 25.11 on the plug-in is called namespace/tmpfs; its file keeps its name.
_JOB_CONTAINER = table(
    "job_container.conf",
    {Form.BOOLEAN: "AutoBasePath EntireStepInNS+24.11 Shared+23.02",
     Form.TEXT: "BasePath CloneNSEpilog+24.11 CloneNSScript+24.11 Dirs+23.02 InitScript NodeName",
     Form.UINT32: "CloneNSEpilog_Wait+24.11 CloneNSScript_Wait+24.11"},
    needs=("job_container/tmpfs", "namespace/tmpfs"), apply=Apply.RESTART_SLURMD,
)
_NAMESPACE = table(
    "namespace.yaml",
    {Form.TEXT: """defaults+25.11 node_confs+25.11 nodes+25.11 options+25.11 auto_base_path+25.11 base_path+25.11
                   clone_ns_script+25.11 clone_ns_script_wait+25.11 clone_ns_epilog+25.11 clone_ns_epilog_wait+25.11
                   clone_ns_flags+25.11 dirs+25.11 disable_bpf_token+25.11 init_script+25.11 shared+25.11
                   user_ns_script+25.11"""},
    *(Key(name, (26, 5), early=Effect.IGNORED) for name in ("dir_confs", "path", "tmpfs")),
    needs=("namespace/linux",), apply=Apply.RESTART_SLURMD,
)
_MPI = table(
    "mpi.conf",
    {Form.TEXT: "PMIxCliTmpDirBase PMIxCollFence PMIxEnv PMIxNetDevicesUCX PMIxTlsUCX",
     Form.UINT32: "PMIxDebug PMIxTimeout",
     Form.BOOLEAN: """PMIxDirectConn PMIxDirectConnEarly PMIxDirectConnUCX PMIxDirectSameArch PMIxFenceBarrier"""},
    Key("PMIxShareServerTopology", (25, 11), early=Effect.IGNORED, form=Form.BOOLEAN),
)
_OCI = table(
    "oci.conf",
    {Form.TEXT: """ContainerPath CreateEnvFile DebugFlags+23.02 DisableHooks+23.02 EnvExclude+23.02 FileDebug+23.02
                   MountSpoolDir+23.02 RunTimeCreate RunTimeDelete RunTimeEnvExclude+23.02 RunTimeKill RunTimeQuery
                   RunTimeRun RunTimeStart SrunArgs+23.02 SrunPath+23.02 StdIODebug+23.02 SyslogDebug+23.02""",
     Form.BOOLEAN: "DisableCleanup+23.02 IgnoreFileConfigJson+23.02"},
)
_HELPERS = table(
    "helpers.conf",
    {Form.TEXT: "AllowUserBoot Feature Flags+24.05 Helper MutuallyExclusive NodeName+23.02",
     Form.UINT32: "BootTime ExecTime"},
    Key("NodeRebootWeight", changes=(((23, 2), Effect.FATAL),), form=Form.UINT32),
    needs=("node_features/helpers",),
)
_BURST_BUFFER = table(
    "burst_buffer.conf",
    {Form.TEXT: """AllowUsers CreateBuffer DefaultPool DenyUsers DestroyBuffer Directive Flags GetSysState GetSysStatus
                   Granularity Pools StartStageIn StartStageOut StopStageIn StopStageOut""",
     Form.UINT32: "OtherTimeout PollInterval+24.05 StageInTimeout StageOutTimeout ValidateTimeout"},
)

KEYS = (*_ACCT_GATHER, *_JOB_CONTAINER, *_NAMESPACE, *_MPI, *_OCI, *_HELPERS, *_BURST_BUFFER)
