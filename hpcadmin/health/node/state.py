"""What is remembered from run to run: results, counters, what still hangs. Losing it loses no verdict."""

import errno
import os
import stat

from hpcadmin.health.node import procs, quickjson, trust
from hpcadmin.health.node.api import BadConfig

MYPY = False
if MYPY:
    from typing import Any

FOLDER = "/var/lib/hpcadmin-health"
SCHEMA = 1


class State:
    """The state folder. Written by nobody else, or not used at all: note says why."""

    def __init__(self, folder: str = FOLDER) -> None:
        self.folder = folder
        self.note = ""
        try:
            os.mkdir(folder, 0o700)
        except OSError as exc:
            if exc.errno != errno.EEXIST:
                self.note = "not recorded: %s: %s" % (folder, exc.strerror)
                return
        try:
            trust.check(folder, os.geteuid())
            if not stat.S_ISDIR(os.stat(folder).st_mode):
                self.note = "not recorded: %s is no folder" % folder
        except (BadConfig, OSError) as exc:
            self.note = "not recorded: %s" % exc

    def read(self, mode: str) -> "dict[str, Any]":
        """What the last run of this mode left; nothing if it cannot be read."""
        if self.note:
            return {}
        try:
            found = quickjson.loads(trust.read(self._path(mode)).decode("utf-8"))
        except (BadConfig, ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) and found.get("schema") == SCHEMA else {}

    def write(self, mode: str, tree: "dict[str, Any]") -> None:
        """Whole or not at all; a full disk is noted, and changes no verdict."""
        if self.note:
            return
        path = self._path(mode)
        fresh = "%s.%d" % (path, os.getpid())
        try:
            fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            try:
                data = quickjson.dumps(dict(tree, schema=SCHEMA)).encode("ascii")
                while data:
                    data = data[os.write(fd, data):]
            finally:
                os.close(fd)
            os.rename(fresh, path)
        except OSError as exc:
            self.note = "not recorded: %s: %s" % (path, exc.strerror)
            try:
                os.unlink(fresh)
            except OSError:
                return

    def _path(self, mode: str) -> str:
        return os.path.join(self.folder, mode + ".json")


def still_hung(last: "dict[str, Any]") -> "dict[str, Any]":
    """What hung at the last run and is still there: key -> pid, start, since, what."""
    found = {}
    hung = last.get("hung")
    for key, one in hung.items() if isinstance(hung, dict) else ():
        kinds = [type(one.get(name)) for name in ("pid", "since", "what")] if isinstance(one, dict) else []
        if kinds == [int, str, str] and procs.same(one["pid"], one.get("start", 0)):
            found[key] = one
    return found
