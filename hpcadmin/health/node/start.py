"""The first lines of hpcadmin-health, in the head of its file: code of an earlier run, else the zip."""
# Short, since it is compiled at each start; no quote of the shell's kind in it. build.py takes comments out.

import marshal
import os
import sys


def key(archive: str) -> "tuple[str | int, ...]":
    # What the code was made of, and for which Python.
    seen = os.stat(archive)
    return (os.path.realpath(archive), seen.st_size, seen.st_mtime_ns, seen.st_ino, sys.version)


def place(folder: str) -> str:
    return os.path.join(folder, "code-%s.bin" % sys.implementation.cache_tag)


def read(folder: str, archive: str) -> "dict[str, tuple[bool, bytes]] | None":
    # The code, if folder and file are ours alone, and it is of this very file and Python.
    try:
        above = os.lstat(folder)
        fd = os.open(place(folder), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        with open(fd, "rb") as file:
            for one, kind in ((above, 0o040000), (os.fstat(fd), 0o100000)):
                if one.st_uid != os.geteuid() or one.st_mode & 0o022 or one.st_mode & 0o170000 != kind:
                    return None
            made_of, codes = marshal.load(file)  # noqa: S302 - only root could have written it
        return codes if made_of == key(archive) else None
    except (OSError, ValueError, EOFError, TypeError):
        return None


def state_folder(args: "list[str]") -> str:
    for number, word in enumerate(args):
        if word.startswith("--state"):
            return word[8:] if word[7:8] == "=" else "".join(args[number + 1:number + 2])
    return "/var/lib/hpcadmin-health"


def begin(archive: str, args: "list[str]") -> int:
    codes = read(state_folder(args), archive)
    if codes and "hpcadmin.health.node.boot" in codes:
        space = {"__name__": "boot"}  # type: dict[str, object]
        exec(marshal.loads(codes["hpcadmin.health.node.boot"][1]), space)  # noqa: S102, S302 - read() saw whose it is
        return space["start"](archive, args, codes)  # type: ignore[operator, no-any-return]
    sys.path.insert(0, archive)
    from hpcadmin.health.node.boot import start
    return start(archive, args)


if __name__ == "__main__" and sys.argv[0] == "-c":
    # Everything is written by then: what Python does at its end takes a tenth of the whole.
    try:
        status = begin(sys.argv[1], sys.argv[2:])
    except BaseException as exc:  # noqa: BLE001 - half a file, no memory: unknown, where Slurm drains on a status of 1
        said = "hpcadmin-health: cannot be started: %s: %s\n" % (type(exc).__name__, exc)
        os.write(2, said.encode("ascii", "replace"))
        status = 0 if any(word.split("=")[0] == "--as" for word in sys.argv[2:]) else 3
    os._exit(status)
