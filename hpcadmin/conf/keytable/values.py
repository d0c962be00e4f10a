"""Plug-ins and other words that values are made of, for the keys whose words are a list of Slurm's own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from hpcadmin.conf.keytable.kinds import OLDEST, Effect, Life, Words, noted

CONF = "slurm.conf"
_DEPRECATED_23_11 = (((23, 11), Effect.DEPRECATED),)
_DEPRECATED = ((OLDEST, Effect.DEPRECATED),)
_ERROR_ALWAYS = ((OLDEST, Effect.ERROR),)
# From 23.11 on the other plug-ins are none with any value that has "none" in it.
_NEVER_NONE = frozenset({"AuthType", "AuthAltTypes", "CredType", "PreemptType"})


def _words(file: str, key: str, text: str, *more: Life, unknown: Effect | None = Effect.FATAL, by_part: bool = False,
           instead: Mapping[str, str] | None = None) -> Words:
    """instead: what replaces words that are gone; of several, apart by |, the first that the version has."""
    told = instead or {}
    found = [replace(life, instead=told.get(life.name, "")) for life in noted(text, unknown or Effect.FATAL)]
    return Words(file, key, (*found, *more), unknown, by_part=by_part)


def _plugins(key: str, kind: str, text: str, *more: Life, bare: bool = False, own: bool = False,
             instead: Mapping[str, str] | None = None) -> Words:
    """bare: the name may stand without its kind. own: sites build such plug-ins, so another name says nothing."""
    told = {f"{kind}/{name}": "|".join(f"{kind}/{one}" for one in other.split("|"))
            for name, other in (instead or {}).items()}
    spelt = " ".join(f"{kind}/{name}" for name in text.split())
    found = _words(CONF, key, spelt, *more, unknown=None if own else Effect.FATAL, instead=told)
    # Slurm looks for a file of that name.
    fatal = ((OLDEST, Effect.FATAL),)
    return replace(found, prefix=f"{kind}/" if bare else "", none=None if key in _NEVER_NONE else (23, 11),
                   capitals=((OLDEST, Effect.ERROR), ((23, 2), Effect.FATAL)) if key == "JobCompType" else fatal)


_PLUGINS = (
    _plugins("AccountingStorageType", "accounting_storage", "slurmdbd ctld_relay+24.05 none"),
    _plugins("AcctGatherEnergyType", "acct_gather_energy", "gpu ibmaem ipmi pm_counters rapl xcc none",
             Life("acct_gather_energy/rsmi", changes=_DEPRECATED, instead="acct_gather_energy/gpu"), bare=True),
    _plugins("AcctGatherFilesystemType", "acct_gather_filesystem", "lustre none"),
    _plugins("AcctGatherInterconnectType", "acct_gather_interconnect", "ofed sysfs none",
             Life("acct_gather_infiniband/ofed", changes=_DEPRECATED, instead="acct_gather_interconnect/ofed")),
    _plugins("AcctGatherProfileType", "acct_gather_profile", "hdf5 influxdb none"),
    _plugins("AuthType", "auth", "munge none slurm+23.11"),
    _plugins("AuthAltTypes", "auth", "jwt munge none slurm+23.11"),
    _plugins("BurstBufferType", "burst_buffer", "datawarp lua", bare=True),
    _plugins("CertgenType", "certgen", "script"),
    _plugins("CertmgrType", "certmgr", "script"),
    _plugins("CliFilterPlugins", "cli_filter", "lua syslog user_defaults none", bare=True, own=True),
    _plugins("CredType", "cred", "munge none slurm+23.11", Life("auth/slurm", (23, 11))),
    _plugins("HashPlugin", "hash", "k12 sha3+24.05"),
    _plugins("JobAcctGatherType", "jobacct_gather", "cgroup linux none"),
    _plugins("JobCompType", "jobcomp", "elasticsearch filetxt kafka+23.02 lua mysql script none", own=True),
    _plugins("JobContainerType", "job_container", "tmpfs cncu-24.05 none"),
    _plugins("JobSubmitPlugins", "job_submit", """all_partitions cray_aries-24.05 defaults logging lua partition pbs
             require_timelimit throttle""", bare=True, own=True),
    _plugins("MCSPlugin", "mcs", "account group label+24.11 user none"),
    _plugins("MetricsType", "metrics", "openmetrics+25.11"),
    # By their older name they are taken too (26.05.5 registers with it).
    _plugins("NamespaceType", "namespace", "linux+25.11 tmpfs+25.11 none+25.11",
             Life("job_container/tmpfs", changes=_DEPRECATED, instead="namespace/tmpfs"),
             Life("job_container/none", changes=_DEPRECATED, instead="namespace/none")),
    _plugins("NodeFeaturesPlugins", "node_features", "helpers knl_cray-24.05 knl_generic-25.11", bare=True, own=True),
    _plugins("PreemptType", "preempt", "none partition_prio qos"),
    _plugins("PrEpPlugins", "prep", "script", bare=True, own=True),
    _plugins("PriorityType", "priority", "basic multifactor"),
    _plugins("ProctrackType", "proctrack", "cgroup linuxproc pgid cray_aries-24.05",
             instead={"cray_aries": "cgroup"}),
    _plugins("SchedulerType", "sched", "backfill builtin"),
    _plugins("SelectType", "select", "cons_tres linear cons_res-23.11 cray_aries-24.05",
             instead={"cons_res": "cons_tres", "cray_aries": "cons_tres"}),
    _plugins("SwitchType", "switch", "hpe_slingshot nvidia_imex+24.05 none cray_aries-24.05"),
    _plugins("TaskPlugin", "task", "affinity cgroup none cray_aries-24.05", bare=True),
    _plugins("TLSType", "tls", "none s2n"),
    _plugins("TopologyPlugin", "topology", """tree 3d_torus-25.05 hypercube-23.11 block+23.11 flat+25.05 ring+26.05
             torus3d+26.05""",
             Life("topology/none", changes=_DEPRECATED_23_11, instead="topology/default|topology/flat"),
             Life("topology/default", (23, 11), (((25, 5), Effect.DEPRECATED),), "topology/none|topology/flat"),
             instead={"3d_torus": "torus3d", "torus3d": "3d_torus", "flat": "default|none"}),
    _words(CONF, "MpiDefault", """none pmi2 pmix cray_shasta pmix_v1 pmix_v2 pmix_v3 pmix_v4 pmix_v5 pmix_v6""",
           Life("openmpi", changes=_DEPRECATED, instead="none"), unknown=None),
)

_LEVELS = "quiet fatal error info verbose debug debug2 debug3 debug4 debug5 0 1 2 3 4 5 6 7 8 9"
_TRES_WORDS = """CR_Core CR_Core_Memory CR_CPU CR_CPU_Memory CR_LLN CR_Memory CR_ONE_TASK_PER_CORE CR_PACK_NODES
    CR_Socket CR_Socket_Memory CR_CORE_DEFAULT_DIST_BLOCK CR_ALLOCATE_FULL_SOCKET-23.02 ENFORCE_BINDING_GRES+23.11
    LL_SHARED_GRES+23.11 MULTIPLE_SHARING_GRES_PJ+23.11 ONE_TASK_PER_SHARING_GRES+23.11 CR_NO_DIST_TOPO_BLOCK+26.05
    other_cons_tres-24.05"""

# A word outside the list keeps the daemon from starting, or is told in an error line.
_CLOSED = (
    _words(CONF, "PrologFlags", "Alloc Contain DeferBatch NoHold Serial X11 ForceRequeueOnFail+23.02 RunInJob+24.05"),
    _words(CONF, "ReconfigFlags", "KeepPartInfo KeepPartState KeepPowerSaveSettings+23.02", unknown=Effect.ERROR),
    _words(CONF, "HealthCheckNodeState", """ALLOC ANY CYCLE IDLE MIXED NONDRAINED_IDLE+23.02 START_ONLY+25.11
           REBOOT_ONLY+26.05""", unknown=Effect.ERROR),
    _words(CONF, "AccountingStorageEnforce", "1 2 all associations limits nojobs nosteps qos safe wckeys"),
    _words(CONF, "SelectTypeParameters", _TRES_WORDS,
           Life("other_cons_res", changes=(((23, 11), Effect.ERROR), ((24, 5), Effect.FATAL)),
                instead="other_cons_tres")),
    _words(CONF, "EnforcePartLimits", "0 1 all any down false no true up yes"),
    _words(CONF, "DebugFlags", """
           Accrue Agent Backfill BackfillMap BurstBuffer cgroup CPU_Bind CpuFrequency Data DB_Archive DB_Assoc DB_Event
           DB_Job DB_QOS DB_Query DB_Reservation DB_Resource DB_Step DB_TRES DB_Usage DB_WCKey Dependency Elasticsearch
           Energy Federation Gang Gres Hetjob Interconnect JAG JobAccountGather JobContainer License MPI Net NetRaw
           Network NetworkRaw NodeFeatures NO_CONF_HASH Power PowerSave Priority Profile Protocol Reservation Route
           Script SelectType Steps Switch TraceJobs Trigger Triggers WorkQ WorkQueue ExtSensors-24.05 FrontEnd-25.05
           TimeCray-24.05 JobComp+23.02 GLOB_SILENCE+23.11 Sack+23.11 AuditRPCs+24.05 DBD_Agent+24.05 TLS+24.05
           ConMgr+24.11 AuditTLS+25.05 Metrics+25.11 Namespace+25.11 thread+26.05 threads+26.05""",
           Life("Task", changes=_ERROR_ALWAYS, instead="CPU_Bind")),
    _words(CONF, "PreemptMode", "CANCEL CLUSTER GANG OFF ON REQUEUE SUSPEND WITHIN PRIORITY+25.05"),
    replace(_words("PartitionName", "PreemptMode", "CANCEL CLUSTER GANG OFF ON REQUEUE SUSPEND WITHIN PRIORITY+25.05"),
            later=(((24, 11), Effect.ERROR),)),
    _words(CONF, "TaskPluginParam", """none sockets cores threads verbose autobind= SlurmdOffSpec OOMKillStep+24.11
           SlurmdSpecOverride+25.05"""),
    _words(CONF, "PriorityUsageResetPeriod", "none now daily weekly monthly quarterly yearly"),
    *(_words(CONF, key, _LEVELS) for key in ("SlurmctldDebug", "SlurmctldSyslogDebug", "SlurmdDebug",
                                             "SlurmdSyslogDebug")),
    _words("slurmdbd.conf", "StorageType", "accounting_storage/mysql"),
    _words("PartitionName", "State", "UP DOWN DRAIN INACTIVE"),
    _words("PartitionName", "SelectTypeParameters", "CR_Core CR_Core_Memory CR_Socket CR_Socket_Memory NONE+26.05"),
    _words("PartitionName", "Exclusive", "NO NODE USER TOPO"),
    _words("cgroup.conf", "CgroupPlugin", "autodetect cgroup/v2 disabled+24.05",
           Life("cgroup/v1", changes=(((25, 5), Effect.DEPRECATED),), instead="cgroup/v2")),
    _words("gres.conf", "AutoDetect", "off nvml rsmi oneapi nrt+23.11 nvidia+24.11 full+26.05", unknown=Effect.ERROR,
           by_part=True),
)
# Slurm looks for its own words in the value, and passes over any other.
_OPEN = (
    _words("gres.conf", "Flags", """CountOnly all_sharing one_sharing nvidia_gpu_env amd_gpu_env intel_gpu_env
           opencl_env no_gpu_env explicit+23.02 env_uuid+26.05""", unknown=Effect.IGNORED, by_part=True),
    _words(CONF, "PrivateData", "account cloud-23.02 event job node partition reservation usage user all none",
           unknown=Effect.IGNORED, by_part=True),
    _words(CONF, "SlurmctldParameters", """
           allow_user_triggers cloud_dns conmgr_connect_timeout=+24.11 conmgr_max_connections=+24.11
           conmgr_read_timeout=+24.11 conmgr_threads=+24.11 conmgr_use_poll+24.11 conmgr_wait_write_delay=+24.11
           conmgr_write_timeout=+24.11 disable_triggers+23.11 enable_async_reply+25.11 enable_configless
           enable_expedited_requeue+25.11 enable_rpc_queue enable_stepmgr+24.05 health_check_report+26.05
           idle_on_node_suspend max_dbd_msg_action= max_powered_nodes=+24.05 no_quick_restart+23.11
           node_reg_mem_percent= power_save_interval= power_save_min_interval= preempt_send_user_signal
           reboot_from_controller reconfig_on_restart+25.11 rl_bucket_size=+23.02 rl_enable+23.02 rl_log_freq=+23.11
           rl_refill_period=+23.02 rl_refill_rate=+23.02 rl_table_size=+23.02 user_resv_delete
           validate_nodeaddr_threads=+23.02""",
           Life("cloud_reg_addrs", changes=(((23, 11), Effect.ERROR),)), unknown=Effect.IGNORED),
    _words(CONF, "SlurmdParameters", """
           allow_ecores+23.02 config_overrides contain_spank+24.05 l3cache_as_socket numa_node_as_socket
           shutdown_on_reboot conmgr_connect_timeout=+24.11 conmgr_max_connections=+24.11 conmgr_read_timeout=+24.11
           conmgr_threads=+24.11 conmgr_use_poll+24.11 conmgr_wait_write_delay=+24.11 conmgr_write_timeout=+24.11""",
           unknown=Effect.IGNORED),
    _words("NodeName", "Parameters", """allow_ecores config_overrides contain_spank l3cache_as_socket
           numa_node_as_socket shutdown_on_reboot""", unknown=Effect.IGNORED),
    _words(CONF, "PreemptParameters", """min_exempt_priority= reclaim_licenses reorder_count= send_user_signal
           strict_order suspend_grace_time=+23.11 youngest_first""", unknown=Effect.IGNORED),
    _words(CONF, "PriorityFlags", """ACCRUE_ALWAYS CALCULATE_RUNNING DEPTH_OBLIVIOUS INCR_ONLY MAX_TRES
           MAX_TRES_GRES+25.05 NO_FAIR_TREE NO_NORMAL_ALL NO_NORMAL_ASSOC NO_NORMAL_PART NO_NORMAL_QOS NO_NORMAL_TRES
           SMALL_RELATIVE_TO_TIME""", unknown=Effect.IGNORED),
    _words(CONF, "AccountingStoreFlags", "job_comment job_env job_script job_extra+23.02 no_stdio+24.05",
           unknown=Effect.IGNORED),
    _words(CONF, "TopologyParam", """Dragonfly TopoOptional RouteTree+23.11 RoutePart+23.11 SwitchAsNodeRank+23.02
           BlockAsNodeRank+25.11 TopoMaxSizeUnroll=+24.11 NoInAddrAny NoCtldInAddrAny""", unknown=Effect.IGNORED),
    _words(CONF, "JobAcctGatherParams", """NoShared UsePss OverMemoryKill DisableGPUAcct+23.02 no_file_cache+25.11""",
           unknown=Effect.IGNORED),
    _words(CONF, "SchedulerParameters", """
           bf_allow_magnetic_slot+24.11 bf_topopt_enable+24.11 bf_topopt_iterations=+24.11 bf_yield_rpc_cnt=+25.05
           defer_batch+23.02 enable_job_state_cache+23.11-26.05 extra_constraints+23.11
           ignore_constraint_validation+24.11 max_submit_line_size=+23.11 no_env_cache-25.05 requeue_delay=+25.11
           requeue_on_resume_failure+25.05 requeue_setup_env_fail-25.05 time_min_as_soft_limit+23.11""",
           *(Life(f"preempt_{word}", changes=(((23, 2), Effect.DEPRECATED),), note=f"PreemptParameters={word} since")
             for word in ("reorder_count=", "strict_order", "youngest_first")), unknown=Effect.IGNORED),
    _words(CONF, "CommunicationParameters", """block_null_hash DisableIPv4 EnableIPv6 disable_http+25.11
           getnameinfo_cache_timeout=+23.02 host_unreach_retry_count=+25.05 keepaliveinterval= keepaliveprobes=
           keepalivetime= NoCtldInAddrAny NoInAddrAny""",
           Life("NoAddrCache", changes=(((23, 11), Effect.ERROR),)), unknown=Effect.IGNORED),
    _words(CONF, "LaunchParameters", """batch_step_set_cpu_freq disable_send_gids enable_nss_slurm
           interactive_step_set_cpu_freq+25.11 mpir_use_nodeaddr send_gids slurmstepd_memlock slurmstepd_memlock_all
           srun_exclusive_allocation+26.05 test_exec ulimit_pam_adopt+23.02 use_interactive_step""",
           unknown=Effect.IGNORED),
)

VALUES: tuple[Words, ...] = (*_PLUGINS, *_CLOSED, *_OPEN)
