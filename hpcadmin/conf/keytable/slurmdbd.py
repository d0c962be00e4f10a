"""slurmdbd.conf."""

from __future__ import annotations

from hpcadmin.conf.keytable.kinds import OLDEST, Apply, Effect, Form, Key, table

_TEXT = """
    ArchiveDir ArchiveScript AuthAltParameters AuthAltTypes AuthInfo AuthType CommunicationParameters DbdAddr
    DbdBackupHost DbdHost DebugFlags DebugLevel DebugLevelSyslog DefaultQOS HashPlugin+24.05 LogFile LogTimeFormat
    MaxQueryTimeRange Parameters PidFile PluginDir PrivateData PurgeEventAfter PurgeJobAfter PurgeJobEnvAfter+26.05
    PurgeJobScriptAfter+26.05 PurgeResvAfter PurgeStepAfter PurgeSuspendAfter PurgeTXNAfter PurgeUsageAfter SlurmUser
    StorageBackupHost StorageHost StorageLoc StorageParameters StoragePass StoragePassScript+25.11 StorageType
    StorageUser TLSParameters+24.05 TLSType+24.05
"""
_BOOLEAN = """
    AllowNoDefAcct AllResourcesAbsolute+23.02 ArchiveEvents ArchiveJobEnv+26.05 ArchiveJobs ArchiveJobScript+26.05
    ArchiveResvs ArchiveSteps ArchiveSuspend ArchiveTXN ArchiveUsage DisableArchiveCommands+25.11 DisableCoordDBD+24.05
    DisableRollups+26.05 TrackSlurmctldDown TrackWCKey
"""
# Months of the old keys; the new ones take "12months", "30days", "24hours".
_OLD = {"JobPurge": "PurgeJobAfter", "StepPurge": "PurgeStepAfter", "PurgeEventMonths": "PurgeEventAfter",
        "PurgeJobMonths": "PurgeJobAfter", "PurgeStepMonths": "PurgeStepAfter",
        "PurgeSuspendMonths": "PurgeSuspendAfter", "PurgeTXNMonths": "PurgeTXNAfter",
        "PurgeUsageMonths": "PurgeUsageAfter"}

KEYS = table(
    "slurmdbd.conf",
    {Form.TEXT: _TEXT, Form.BOOLEAN: _BOOLEAN, Form.UINT32: "MaxPurgeLimit+25.11",
     Form.UINT16: "CommitDelay DbdPort MessageTimeout StoragePort TCPTimeout"},
    *(Key(name, changes=((OLDEST, Effect.DEPRECATED),), instead=instead, form=Form.UINT32)
      for name, instead in _OLD.items()),
    apply=Apply.RESTART_SLURMDBD,
)
