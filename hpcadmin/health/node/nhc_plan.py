"""nhc.conf -> what is to be done on this host: checks with their words, settings, and what only a shell could do."""

from hpcadmin.health.node import nhc_words
from hpcadmin.health.node.api import plain
from hpcadmin.health.node.nhc_read import for_host

MYPY = False
if MYPY:
    from typing import Collection

CHECK, SETTING, NOT_RUN, WRONG, SKIPPED = "check", "setting", "not run", "wrong", "skipped"

# What NHC itself reads from its variables: those that change a verdict are followed, the others are only kept.
FOLLOWED = frozenset((
    "TIMEOUT", "NHC_RM", "MAX_SYS_UID", "NHC_AUTH_USERS", "RM_DAEMON_MATCH", "MCELOG", "MCELOG_ARGS",
    "MCELOG_MAX_CORRECTED_RATE", "MCELOG_MAX_UNCORRECTED_RATE", "NVIDIA_SMI_HEALTHMON", "NVIDIA_SMI_HEALTHMON_ARGS",
    "NVIDIA_HEALTHMON", "NVIDIA_HEALTHMON_ARGS", "NETSTAT_CMD", "NETSTAT_ARGS", "SS_CMD", "SS_ARGS", "MDIAG_CMD",
    "SQUEUE_CMD", "SQUEUE_NODE", "SQUEUE_FMT_ARGS", "PASSWD_DATA_SRC", "LOGIN_DEFS_SRC", "PATH", "HOSTNAME",
    "HOSTNAME_S", "PBS_SERVER_HOME", "JOBFILE_PATH"))
HARMLESS = frozenset((
    "MARK_OFFLINE", "DEBUG", "SILENT", "VERBOSE", "TS", "LOGFILE", "ONLINE_NODE", "OFFLINE_NODE", "HELPERDIR",
    "DETACHED_MODE", "DETACHED_MODE_FAIL_NODATA", "NHC_CHECK_ALL", "NHC_CHECK_FORKED", "CONFDIR", "CONFFILE", "INCDIR",
    "RESULTFILE", "MOUNT_CMD", "SYSCONFIGDIR", "LIBEXECDIR", "NAME", "DF_FLAGS", "DFI_FLAGS"))
# Names that NHC's own code keeps its findings in, or that replace a tool whose answer is not taken from that tool here.
_INNER = ("HW_", "PS_", "FS_", "DF_", "DFI_", "DMI_", "NET_", "PWUID_", "PWDATA_", "NHC_", "NVSMI_", "NV_", "STAT_",
          "BASH", "IFS", "SHELL", "CHECK", "LOADAVG", "TOTPROCS", "JOBUSERS")
_DECLARE = ("export", "declare", "typeset", "readonly")


class Item:
    """One line of the file that counts on this host."""

    __slots__ = ("args", "exported", "kind", "line", "name", "names", "notices", "why")

    def __init__(self, kind: str, line: int, name: str, why: str = "") -> None:
        self.kind, self.line, self.name, self.why = kind, line, name, why
        self.args = []  # type: list[str]
        self.names = {}  # type: dict[str, str]
        self.exported = {}  # type: dict[str, str]
        self.notices = []  # type: list[str]

    @property
    def label(self) -> str:
        return "line %d: %s" % (self.line, plain(self.name, 80))


class Plan:
    """Goes through the lines in order, with the variables as they are then."""

    def __init__(self, host: str, checks: "Collection[str]", counts: "dict[str, int]") -> None:
        self.checks = checks
        self.names = {"HOSTNAME": host, "HOSTNAME_S": host.partition(".")[0]}
        self.exported = {}  # type: dict[str, str]
        self.counts = counts
        self._hardware_read = False

    def items(self, text: str) -> "list[Item]":
        found = []
        for line in for_host(text, self.names["HOSTNAME"]):
            if line.wrong:
                item = Item(WRONG, line.number, "mask", line.wrong)
            elif line.check:
                item = self._item(line.number, nhc_words.squeeze(line.check))
            else:
                item = Item(SKIPPED, line.number, "line", "; ".join(line.notices))
            item.notices = line.notices + item.notices
            found.append(item)
        return found

    def _item(self, number: int, text: str) -> Item:
        first = text.partition(" ")[0]
        try:
            words = nhc_words.split(text, self._visible())
        except nhc_words.NotRun as exc:
            return Item(NOT_RUN, number, first, str(exc))
        except nhc_words.WrongSyntax as exc:
            return Item(WRONG, number, first, str(exc))
        before = {}  # type: dict[str, str]
        while words and _assignment(words[0]):
            name, _, value = words.pop(0).text.partition("=")
            before[name] = value
        if not words:
            return self._assign(number, before, {}) if before else Item(SKIPPED, number, "line", "only a comment")
        command = words[0]
        if not command.quoted and command.text in nhc_words.RESERVED:
            return Item(NOT_RUN, number, command.text, "a word of the shell")
        if command.text in _DECLARE and not before:
            return self._declared(number, command.text, words[1:])
        return self._check(number, [word.text for word in words], before)

    def _visible(self) -> "dict[str, str]":
        """The variables that a line may use; the counts of processors once a check has read them."""
        counts = {name: str(count) for name, count in self.counts.items()} if self._hardware_read else {}
        return dict(self.names, **counts)

    def _check(self, number: int, words: "list[str]", before: "dict[str, str]") -> Item:
        name = words[0]
        if name not in self.checks:
            return Item(NOT_RUN, number, name, "NHC brings no such check")
        strange = [key for key in before if not _understood(key)]
        if strange:
            return Item(NOT_RUN, number, name, "with the shell variable %s" % strange[0])
        item = Item(CHECK, number, name)
        item.args = words[1:]
        item.names = dict(self._visible(), **before)
        item.exported = dict(self.exported, **before)
        if name.startswith("check_hw_") and name != "check_hw_mcelog":
            self._hardware_read = True
        return item

    def _declared(self, number: int, command: str, words: "list[nhc_words.Word]") -> Item:
        values = {}
        for word in words:
            name, mark, value = word.text.partition("=")
            if not nhc_words.is_name(name):
                return Item(NOT_RUN, number, command, "%s %s" % (command, word.text))
            values[name] = value if mark else self.names.get(name, "")
        return self._assign(number, values, values if command == "export" else {})

    def _assign(self, number: int, values: "dict[str, str]", exported: "dict[str, str]") -> Item:
        label = ", ".join(sorted(values))
        strange = [name for name in sorted(values) if not _understood(name)]
        if strange:
            return Item(NOT_RUN, number, label, "%s is where the code of NHC keeps its findings" % strange[0])
        item = Item(SETTING, number, label)
        for name, value in values.items():
            self.names[name] = value
            if name in exported or name in self.exported:
                self.exported[name] = value
            if name not in FOLLOWED and name not in HARMLESS:
                item.notices.append("%s is set only for lines and commands of this file" % name)
            elif name == "TIMEOUT":
                item.notices.append("TIMEOUT does not change how long the run may take")
        return item


def _assignment(word: "nhc_words.Word") -> bool:
    name, mark, _ = word.text.partition("=")
    if mark and not word.quoted and (name[-1:] == "+" or "[" in name) and nhc_words.is_name(name[:1]):
        return False
    return bool(mark) and not word.quoted and nhc_words.is_name(name)


def _understood(name: str) -> bool:
    return name in FOLLOWED or name in HARMLESS or not name.startswith(_INNER)

