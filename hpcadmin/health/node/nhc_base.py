"""What every NHC check has at hand: the door, the variables of its line, arithmetic and matches with their notices."""

from hpcadmin.health.node import tool
from hpcadmin.health.node.api import NoAnswer
from hpcadmin.health.node.nhc_arith import Numbers
from hpcadmin.health.node.nhc_match import Matcher
from hpcadmin.health.node.nhc_plan import FOLLOWED, HARMLESS
from hpcadmin.health.node.nhc_words import options

MYPY = False
if MYPY:
    from hpcadmin.health.node.door import Door

COMMAND_S = 20.0   # what NHC waits for without an end gets this long


class Died(Exception):  # noqa: N818 - the check's verdict
    """The check failed, with this reason."""


class Nhc:
    """One line's surroundings."""

    def __init__(self, door: "Door", check: str, names: "dict[str, str]", exported: "dict[str, str]") -> None:
        self.door, self.check, self.names, self.exported = door, check, names, exported
        self.matcher = Matcher()
        self.notices = self.matcher.notices
        self.numbers = Numbers(names, self.notice)

    def notice(self, text: str) -> None:
        if text not in self.notices:
            self.notices.append(text)

    def matches(self, text: str, expression: str) -> bool:
        return self.matcher.matches(text, expression)

    def setting(self, name: str, default: str) -> str:
        """A variable of NHC's with its default; one that was set to nothing is nothing."""
        return self.names.get(name, default)

    def options(self, wanted: str, args: "list[str]") -> "tuple[list[tuple[str, str]], list[str]]":
        found, rest, wrong = options(wanted, args)
        if wrong:
            raise Died(wrong)
        return found, rest

    def place(self, command: str) -> str:
        """Where PATH of the configuration finds the command; the command itself if the PATH is the usual one."""
        path = self.names.get("PATH")
        if path is None or "/" in command:
            return command
        folders = tuple(folder for folder in path.split(":") if folder[:1] == "/")
        found = tool.find(command, folders, self.door.root)
        return found[len(self.door.root):] if found else command + " in PATH"

    def run(self, argv: "list[str]", timeout_s: float = COMMAND_S) -> "tuple[int, str, str]":
        """(exit status, output, errors) of a command; 127 if there is none, as a shell gives it."""
        words = [self.place(argv[0])] + argv[1:]
        if not self.door.has(words[0]):
            return 127, "", "%s: command not found" % argv[0]
        extra = ["%s=%s" % (name, value) for name, value in sorted(self.exported.items())
                 if name not in FOLLOWED and name not in HARMLESS]
        ran = self.door.tool((["env"] + extra if extra else []) + words, timeout_s)
        if ran.cut:
            raise NoAnswer("%s printed more than can be read" % argv[0])
        return ran.status or 0, ran.out.replace("\0", ""), ran.err

    def lines(self, output: str) -> "list[str]":
        """As NHC splits an output: empty lines are none."""
        return [line for line in output.split("\n") if line]

    # who is who: as /etc/passwd says it

    def passwd(self) -> "dict[int, str]":
        source = self.setting("PASSWD_DATA_SRC", "/etc/passwd")

        def read() -> "dict[int, str]":
            users = {}
            for line in self.door.data(source).decode("utf-8", "surrogateescape").split("\n"):
                fields = line.split(":")
                if len(fields) > 2 and fields[2].isdigit():
                    users[int(fields[2])] = fields[0]
            return users
        return self.door.once("nhc users " + source, read)  # type: ignore[no-any-return]

    def user_named(self, text: str) -> str:
        """The user of a number, as the options -u take both; an unknown number is nobody ("")."""
        return self.passwd().get(int(text), "") if text.isdigit() and len(text) < 12 else text

    def max_system_uid(self) -> str:
        given = self.names.get("MAX_SYS_UID", "")
        if given:
            return given
        source = self.setting("LOGIN_DEFS_SRC", "/etc/login.defs")
        if not self.door.exists(source):
            return "99"
        lowest = highest = ""
        for line in self.door.lines(source):
            digits = "".join(char for char in line if char in "0123456789")
            if line.lstrip().startswith("UID_MIN"):
                lowest = digits
            elif line.lstrip().startswith("SYS_UID_MAX"):
                highest = digits
                break
        value = int(highest) if highest else int(lowest) - 1 if lowest else 99
        return str(value if value > 0 else 99)

    def manager(self) -> str:
        """The resource manager: as set, else by what is installed."""
        given = self.names.get("NHC_RM", "")
        if given:
            return given
        if self.door.exists("/var/spool/torque"):
            return "pbs"
        for command, name in (("scontrol", "slurm"), ("pbsnodes", "pbs"), ("qselect", "sge"), ("badmin", "lsf"),
                              ("sbatchd", "lsf")):
            if self.door.has(command):
                return name
        return ""
