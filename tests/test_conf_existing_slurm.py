"""The reader against Slurm's own: scontrol reads slurm.conf before it does anything, and says what it cannot read."""

from __future__ import annotations

import random
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from hpcadmin.conf.existing import hostlist
from hpcadmin.conf.existing.read import configure
from hpcadmin.errors import StoreError, UsageError

pytestmark = [pytest.mark.deep, pytest.mark.skipif(shutil.which("scontrol") is None, reason="Slurm is not installed")]

HEAD = "ClusterName=c\nSlurmctldHost=localhost\n"
LINES = ["MailProg", "=", "/a", " ", "\t", '"', "#", "\\", "\n", "\\\n", "\r\n", "NodeName=n1", "NodeName=n[1-2]",
         "CPUs", " CPUs=2", " Feature=a", "PartitionName=p", " Nodes=ALL", "Prolog=/x", "Epilog=", "\\#",
         "Include /dev/null", "+=", "x y", '="a b"', "NodeSet=s Nodes=n1", "\x0b", "SlurmctldTimeout=5",
         "NodeName=DEFAULT", " NodeAddr=x", "# c"]
VALUES = ["a", '"', "\\#", "\\\\", '\\"', "\\\n", " ", "=", "#", "'", "\\\r\n", "\t", "b c", "+", "[1-2]", "\\ ",
          "\x0b"]
# What a key means is not the reader's.
MEANING = ("unrecognized key", "nvalid", "valid number")


def scontrol(folder: Path, text: str, hosts: str = "z") -> tuple[int, str, str]:
    """(exit status, what it prints, what it says) with these lines as its slurm.conf."""
    file = folder / "slurm.conf"
    file.write_bytes(text.encode())
    done = subprocess.run(["scontrol", "show", "hostnames", hosts], env={"SLURM_CONF": str(file)}, check=False,
                          capture_output=True, timeout=30)
    return done.returncode, done.stdout.decode(), done.stderr.decode("utf-8", "surrogateescape")


def nothing(path: str) -> str:
    if path == "/dev/null":
        return ""
    raise StoreError("there is none", where=path)


@pytest.mark.parametrize("seed", range(150))
def test_what_slurm_refuses_to_read(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311
    text = f"{HEAD}NodeName=x CPUs=1\n{''.join(chance.choices(LINES, k=chance.randint(1, 8)))}\n"
    conf = configure({"slurm.conf": text}, open_file=nothing)
    if conf.missing:
        pytest.skip("scontrol waits a minute for an included file")
    status, _, said = scontrol(tmp_path, text)
    if not any(words in said for words in MEANING):
        assert any(f.fatal for f in conf.faults) == (status != 0), (text, conf.faults, said)


@pytest.mark.parametrize("seed", range(150))
def test_the_value_that_slurm_takes(tmp_path: Path, seed: int) -> None:
    """A text where a number has to be is printed as it was read; an empty one is taken in silence."""
    chance = random.Random(seed)  # noqa: S311
    text = f"{HEAD}SlurmctldTimeout={''.join(chance.choices(VALUES, k=chance.randint(1, 7)))}\n"
    _, _, said = scontrol(tmp_path, text)
    match = re.search(r'SlurmctldTimeout value "(.*)" is not a valid number', said, re.DOTALL)
    ours = configure({"slurm.conf": text}).settings.get("slurmctldtimeout")
    assert (match[1] if match else "") == (ours.text if ours else ""), (text, said)


@pytest.mark.parametrize("text", ["r[1-2]n[08-10]", "n[01-100]", "a,,b", "n1,n1", "n[1,1]", "n1!n2", "[1-3]", "b[2,1]",
                                  "n[1-3]-ib[7-8]", "n[1-2][3-4]", "n[9-010]", "n[1,02]", "n[01-2]", "n[3-1]", "n[0-f]",
                                  "n[1-70000]", "n[]", "n[1-2-3]", "n[1-3],"])
def test_host_lists(tmp_path: Path, text: str) -> None:
    _, names, said = scontrol(tmp_path, f"{HEAD}NodeName=x CPUs=1\n", text)
    if "nvalid" in said:
        with pytest.raises(UsageError):
            hostlist.expand(text)
    else:
        assert list(hostlist.expand(text)) == names.split()
