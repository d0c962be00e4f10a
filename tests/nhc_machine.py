"""A folder that stands for a node, from tests/samples/nhc: what NHC saw when it was recorded, and our door to it."""

import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

from hpcadmin.health.node import tool
from hpcadmin.health.node.api import NoAnswer
from hpcadmin.health.node.door import Door

SAMPLES = Path(__file__).parent / "samples" / "nhc"
TOOLS = ("cat", "date", "sleep", "stat", "ps", "mkdir", "rm", "env", "true", "false", "test", "echo", "setsid", "sed",
         "grep", "printf", "seq", "kill", "sh", "bash")
PAGE_KIB = os.sysconf("SC_PAGE_SIZE") // 1024


def variants() -> dict[str, dict[str, str | None]]:
    return json.loads((SAMPLES / "variants.json").read_text())  # type: ignore[no-any-return]


def build(name: str, root: Path) -> None:
    """The base machine with the files of its variant in place of its own."""
    shutil.copytree(SAMPLES / "compute", root)
    for path, content in variants().get(name, {}).items():
        target = root / path
        if content is None:
            shutil.rmtree(target) if target.is_dir() else target.unlink()
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(content)
    _processes(root)
    _files(root)
    _commands(root)


def conf_text(cell: str) -> str:
    """The configuration of a table's cell: ⏎ is a newline and ⇥ a tab; it ends with a newline unless ⊣ says no."""
    text = cell.replace("⏎", "\n").replace("⇥", "\t").replace("␍", "\r")
    return text[:-1] if text.endswith("⊣") else text + "\n"


def rows(path: Path) -> list[list[str]]:
    lines = path.read_text().split("\n")
    return [line.split("\t") for line in lines if line and line[0] != "#"]


def _processes(root: Path) -> None:
    for pid, parent, uid, state, name, user, system, start, virtual, pages, line in rows(root / "processes.tsv"):
        folder = root / "proc" / pid
        folder.mkdir()
        kernel = "2097152" if parent == "2" or pid == "2" else "4194304"
        fields = [pid, f"({name})", state, parent, pid, pid, "0", "-1", kernel, *["0"] * 4, user, system, "0", "0",
                  "20", "0", "1", "0", start, str(int(virtual) * 1024), pages, *["0"] * 28]
        (folder / "stat").write_text(" ".join(fields) + "\n")
        (folder / "cmdline").write_bytes(line.replace(" ", "\0").encode() + b"\0" if line else b"")
        (folder / "status").write_text(f"Name:\t{name}\nState:\t{state}\nPid:\t{pid}\nPPid:\t{parent}\n"
                                       f"Uid:\t{uid}\t{uid}\t{uid}\t{uid}\nGid:\t0\t0\t0\t0\nVmSize:\t{virtual} kB\n"
                                       f"VmRSS:\t{int(pages) * PAGE_KIB} kB\n")
        (folder / "statm").write_text(f"{int(virtual) // 4} {pages} 0 0 0 0 0\n")
        if os.geteuid() == 0:
            os.chown(folder, int(uid), 0)
    (root / "proc" / "self").symlink_to("800")


def _files(root: Path) -> None:
    for kind, mode, uid, gid, age, path, content in rows(root / "files.tsv"):
        target = root / path[1:]
        target.parent.mkdir(parents=True, exist_ok=True)
        if kind == "d":
            target.mkdir()
        elif kind == "l":
            target.symlink_to(content)
        elif kind == "p":
            os.mkfifo(target)
        elif kind in "bc":
            if os.geteuid() != 0:
                continue
            major, minor = content.split(",")
            os.mknod(target, {"b": 0o060000, "c": 0o020000}[kind] | 0o600, os.makedev(int(major), int(minor)))
        else:
            target.write_text(content.replace("\\\\", "\0").replace("\\n", "\n").replace("\0", "\\"))
        if os.geteuid() == 0:
            os.chown(target, int(uid), int(gid), follow_symlinks=False)
        if kind != "l":
            target.chmod(int(mode, 8))
            moment = time.time() - int(age)
            os.utime(target, (moment, moment))


def _commands(root: Path) -> None:
    """Programs that print what was recorded, by what the table says of them; and the few real ones."""
    folder = root / "commands"
    for file in sorted(folder.iterdir()):
        status, _, text = file.read_text().partition("\n")
        file.unlink()
        out = folder / f".{file.name}"
        out.write_text(text)
        wait = "sleep 3\n" if text == "SLEEP\n" else ""
        file.write_text(f'#!/bin/sh\n{wait}while IFS= read -r line || [ -n "$line" ]; do printf "%s\\n" "$line"; done '
                        f'< "${{0%/*}}/.{file.name}"\nexit {status}\n' if text else f"#!/bin/sh\nexit {status}\n")
        file.chmod(0o755)
    (root / "tools").mkdir()
    for name in TOOLS:
        (root / "tools" / name).symlink_to(f"/usr/bin/{name}")


class TableDoor(Door):
    """The door to such a folder: sizes and owners come from its tables, since a folder has neither."""

    def __init__(self, root: Path, **more: Any) -> None:
        super().__init__(str(root), (f"{root}/commands", f"{root}/tools"), **more)
        self.sizes = {row[0]: [int(cell) for cell in row[1:]] for row in rows(root / "df.tsv")}
        self.owners = {int(row[0]): int(row[2]) for row in rows(root / "processes.tsv")}

    def now(self) -> float:
        """The folder may have been made in this very second; the table's machine was older."""
        return super().now() + 2

    def statvfs(self, path: str) -> os.statvfs_result:
        total, used, available, inodes, free = self.sizes[path]
        return os.statvfs_result((1024, 1024, total, total - used, available, inodes, free, free, 0, 255))

    def has(self, name: str) -> bool:
        return self._find(name) is not None

    def _find(self, name: str) -> str | None:
        return tool.find(name, self.folders, self.root if "/" in name else "")

    def _run(self, argv: list[str], timeout_s: float) -> tool.Ran | NoAnswer:
        """The slow one is not waited for; the others get time enough on a machine that is busy."""
        program = None if argv[0] == "slow" and timeout_s < 3 else self._find(argv[0])
        ran = tool.run(program, argv, max(timeout_s, 30), self.folders) if program else None
        return ran if ran and ran.status is not None else NoAnswer(f"{argv[0]} did not answer")

    def proc_owner(self, pid: int) -> int:
        return self.owners[pid]

    def user(self, uid: int) -> str:
        return str(uid)
