"""Records NHC's verdicts in table.tsv, as root: `record.py SOURCE_OF_NHC [TEXT]`, all lines or those with TEXT.

The machine is a folder (tests/nhc_machine.py) with the real bash, coreutils and procps; NHC runs in it by chroot.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent.parent), str(HERE.parent.parent.parent)]

import nhc_machine  # noqa: E402 - its place is known only now

PS = r"""#!/bin/bash
# procps wants to find itself in the folder that stands for /proc
/bin/bash -c 'mkdir /proc/$$; sed "s/^820 (chronyd)/$$ (psself)/" /proc/820/stat > /proc/$$/stat
sed "s/chronyd/psself/;s/820/$$/" /proc/820/status > /proc/$$/status; echo 0 0 0 0 0 0 0 > /proc/$$/statm
printf "psself\0" > /proc/$$/cmdline; exec /usr/bin/ps "$@"' ps "$@" | grep -v psself
for d in /proc/[0-9]*; do read -r -d "" c < $d/cmdline; [[ "$c" == psself ]] && rm -rf $d; done
exit 0
"""


def df(root: Path) -> str:
    """A df that prints the table, with sizes or (-Tia) inodes."""
    mounts = [line.split(" ") for line in (root / "proc/mounts").read_text().split("\n") if line]
    table = {row[0]: [int(cell) for cell in row[1:]] for row in nhc_machine.rows(root / "df.tsv")}

    def listing(inodes: bool) -> str:
        lines = ["Filesystem Type 1K-blocks Used Available Use% Mounted-on"]
        for source, path, kind in (words[:3] for words in mounts):
            if kind == "autofs":
                continue
            plain = path.replace("\\040", " ")
            total, used, free, count, left = table[plain]
            if inodes:
                total, used, free = count, count - left, left
            percent = f"{-(-used * 100 // (used + free))}%" if used + free else "-"
            lines.append(f"{source} {kind} {total} {used} {free} {percent} {plain}")
        return "\n".join(lines)
    return (f"#!/bin/sh\nif [ \"$1\" = -Tia ]; then cat <<'END'\n{listing(True)}\nEND\n"
            f"else cat <<'END'\n{listing(False)}\nEND\nfi\n")


def prepare(name: str, source: Path, root: Path) -> None:
    nhc_machine.build(name, root)
    for command, text in (("ps", PS), ("df", df(root))):
        (root / "commands" / command).write_text(text)
        (root / "commands" / command).chmod(0o755)
    for folder in ("usr", "conf", "nhc", "tmp", "run"):
        (root / folder).mkdir(exist_ok=True)
    for folder in ("bin", "sbin", "lib", "lib64"):
        (root / folder).symlink_to(f"usr/{folder}")
    shutil.copy(source / "nhc", root / "nhc/nhc")
    shutil.copytree(source / "scripts", root / "nhc/scripts")
    subprocess.run(["mount", "--bind", "/usr", root / "usr"], check=True)


def verdict(root: Path, host: str, conf: str) -> tuple[int, str]:
    """(exit status, the check that failed)."""
    (root / "proc/sys/kernel/hostname").write_text(host + "\n")
    (root / "conf/nhc.conf").write_text(conf)
    log = root / "log"
    log.unlink(missing_ok=True)
    done = subprocess.run(
        ["chroot", root, "/usr/bin/env", "-i", "SHELL=/bin/bash", "/bin/bash", "/nhc/nhc", "-D", "/conf",
         "PATH=/commands:/tools", "INCDIR=/nhc/scripts", "MARK_OFFLINE=0", "VERBOSE=1", "LOGFILE=/log",
         "SQUEUE_CMD=squeue"], stdin=subprocess.DEVNULL, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True, timeout=90)
    run = [line for line in log.read_text().split("\n") if line.startswith('Running check:  "')] if log.exists() else []
    failed = run[-1][len('Running check:  "'):].split()[0].strip('"') if done.returncode and run else ""
    return done.returncode, failed


def main() -> None:
    source, text = Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else ""
    table = HERE / "table.tsv"
    lines = table.read_text().split("\n")
    made: dict[str, Path] = {}
    with tempfile.TemporaryDirectory(dir=os.environ.get("SCRATCH")) as scratch:
        try:
            for number, line in enumerate(lines, 1):
                if text not in line or not line or line[0] == "#":
                    continue
                machine, host, _, _, ours, why, conf = line.split("\t", 6)
                if machine not in made:
                    made[machine] = Path(scratch) / machine
                    prepare(machine, source, made[machine])
                status, failed = verdict(made[machine], host, nhc_machine.conf_text(conf))
                lines[number - 1] = "\t".join([machine, host, str(status), failed, ours, why, conf])
        finally:
            for root in made.values():
                subprocess.run(["umount", root / "usr"], check=True)
            table.write_text("\n".join(lines))


if __name__ == "__main__":
    if os.environ.get("NHC_RECORDING") != "1":   # in a mount namespace of its own
        os.environ["NHC_RECORDING"] = "1"
        os.execvp("unshare", ["unshare", "-m", sys.executable, __file__, *sys.argv[1:]])  # noqa: S606
    main()
