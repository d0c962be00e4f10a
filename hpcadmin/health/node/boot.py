"""Starts hpcadmin-health from its one file, with code compiled at an earlier run: that takes longer than checking."""

import marshal
import os
import sys

OLDEST = (3, 6)

MYPY = False
if MYPY:
    from typing import Any


class Compiled:
    """Modules that were compiled at an earlier run: name -> (is a package, code)."""

    def __init__(self, archive: str, codes: "dict[str, tuple[bool, bytes]]") -> None:
        self.archive, self.codes = archive, codes

    def find_spec(self, name: str, path: object = None, target: object = None) -> "Any":
        if name not in self.codes:
            return None
        package = self.codes[name][0]
        place = os.path.join(self.archive, *name.split(".")) + ("/__init__.py" if package else ".py")
        finder = self  # type: Any
        spec = type(sys.__spec__)(name, finder, origin=place, is_package=package)
        if package:
            spec.submodule_search_locations = [os.path.dirname(place)]
        spec.has_location = True
        return spec

    def create_module(self, spec: object) -> None:
        return None

    def exec_module(self, module: "Any") -> None:
        exec(marshal.loads(self.codes[module.__name__][1]), module.__dict__)  # noqa: S102, S302 - its reader saw whose it is


def write(folder: str, archive: str) -> None:
    """Compiles everything for the next run. That fails in silence: the next run is slower, and right."""
    import zipfile

    from hpcadmin.health.node.start import key, place
    try:
        with zipfile.ZipFile(archive) as opened:
            codes = {}  # type: Any
            for name in opened.namelist():
                if name.endswith(".py") and name != "__main__.py":
                    module = name[:-3].replace("/", ".")
                    package = module.endswith(".__init__")
                    module = module[:-9] if package else module
                    code = compile(opened.read(name), os.path.join(archive, name), "exec", dont_inherit=True)
                    codes[module] = (package, marshal.dumps(code))
        fresh = "%s.%d" % (place(folder), os.getpid())
        fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        try:
            with os.fdopen(fd, "wb") as file:
                file.write(marshal.dumps([key(archive), codes]))
            os.rename(fresh, place(folder))
        except OSError:                         # a full disk: nothing half stays behind
            os.unlink(fresh)
    except (OSError, ValueError, SyntaxError, zipfile.BadZipFile):
        return


def start(archive: str, args: "list[str]", codes: "dict[str, tuple[bool, bytes]] | None" = None) -> int:
    """codes: what an earlier run compiled; without it everything comes from the file, and is compiled for the next."""
    if sys.version_info < OLDEST:
        os.write(2, b"hpcadmin-health: needs Python 3.6 or later\n")
        return 0 if any(word.split("=")[0] == "--as" for word in args) else 3
    if codes:
        sys.meta_path.insert(0, Compiled(archive, codes))
    from hpcadmin.health.node.main import main
    status = main(args)
    if not codes and "--root" not in " ".join(args):
        from hpcadmin.health.node.start import state_folder
        folder = state_folder(args)
        if os.path.isdir(folder) and os.access(folder, os.W_OK):
            write(folder, archive)
    return status


if __name__ == "__main__" and not os.path.isdir(sys.path[0]):   # python3 FILE: not by the lines at its head
    from hpcadmin.health.node.start import begin
    sys.exit(begin(sys.path[0], sys.argv[1:]))
