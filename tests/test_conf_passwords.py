"""Passwords in Slurm's files: hidden in everything that is told of the files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from looped import looped

from hpcadmin.cli import run
from hpcadmin.conf.passwords import hidden, secret

WORD = "gehe1m"
HEAD = "ClusterName=c\nSlurmctldHost=h\nNodeName=n1 CPUs=4 RealMemory=100\nPartitionName=p Nodes=n1\n"


@looped("text", [
    f"StoragePass={WORD}", f"storagepass = {WORD}", f'StoragePass="{WORD} {WORD}"', f'StoragePass="{WORD}',
    f"AccountingStoragePass={WORD},{WORD}", f"JobCompPass+={WORD}", f"StoragePass=\\\n{WORD}",
    f"StoragePass={WORD}\\\n{WORD}",
    f"ProfileInfluxDBPass={WORD}", f"JobCompParams=user=u,password={WORD},timeout=3",
    f"JobCompLoc=http://u:{WORD}@host:92/x",
    f"EnergyIPMIPassword={WORD}", f"AuthInfo=socket=/x,token={WORD}", f"#StoragePass={WORD}",
])
def test_what_is_hidden(text: str) -> None:
    assert WORD not in hidden(text) and "*****" in hidden(text)
    assert hidden(hidden(text)) == hidden(text)


@pytest.mark.parametrize("text", [
    "NodeName=n1 CPUs=4", "JobCompLoc=http://host:9200/index", "SchedulerParameters=bf_window=10", "bypass the rest",
    "AccountingStorageHost=db", "compass", "Prolog=/etc/pass/prolog.sh", "a@b:c", "user@host: x",
])
def test_what_is_not(text: str) -> None:
    assert hidden(text) == text


def test_keys() -> None:
    assert all(secret(key) for key in ("StoragePass", "ACCOUNTINGSTORAGEPASS", "JobCompPass", "EnergyIPMIPassword"))
    assert not any(secret(key) for key in ("JobCompPassScript", "StorageUser", "AuthInfo", "NodeName"))


BAD = {
    "twice": f"StoragePass=x{WORD}\nStoragePass={WORD}\n",
    "words": f"StoragePass={WORD} {WORD}\n",
    "quotes": f'StoragePass="{WORD}" {WORD}\n',
    "odd quotes": f'StoragePass=a"{WORD}\n',
    "typo": f"StoragePas={WORD}\nStoragPass={WORD}\n",
    "added": f"StoragePass+={WORD}\n",
}


@pytest.mark.parametrize("lines", BAD.values(), ids=list(BAD))
@pytest.mark.parametrize("options", [(), ("--json",)])
def test_check_tells_none(lines: str, options: tuple[str, ...], tmp_path: Path,
                          capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "slurm.conf").write_text(HEAD + lines.replace("StoragePass", "AccountingStoragePass"))
    (tmp_path / "slurmdbd.conf").write_text(f"DbdHost=h\nStorageType=accounting_storage/mysql\n{lines}")
    (tmp_path / "acct_gather.conf").write_text(lines.replace("StoragePass", "ProfileInfluxDBPass"))
    run(["conf", "check", str(tmp_path), *options])
    out = "".join(capsys.readouterr())
    assert "findings" in out or "judged for" in out
    assert WORD not in out.replace(f"StoragePas={WORD}", "")


@pytest.mark.parametrize("options", [(), ("--json",), ("--text",)])
def test_diff_tells_none(options: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, word in (("a", WORD), ("b", f"x{WORD}")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "slurm.conf").write_text(
            f"{HEAD}AccountingStoragePass={word}\nJobCompLoc=http://u:{word}@h/\nJobCompParams=password={word}\n"
            f"JobCompPass={word} {word}\n")
        (tmp_path / name / "slurmdbd.conf").write_text(f"DbdHost=h\nStoragePass={word}\n")
    run(["conf", "diff", str(tmp_path / "a"), "--against", str(tmp_path / "b"), *options])
    out = "".join(capsys.readouterr())
    assert WORD not in out
    if options == ("--json",):
        told = {d["what"] for d in json.loads(out)["differences"]}
        assert told >= {"StoragePass", "AccountingStoragePass", "JobCompLoc"}


def test_lines_of_a_file_of_another_kind_are_not_repeated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "shadow").write_text("".join(f"user{n}:$6${WORD}:20228:0:99999:7:::\n" for n in range(9)))
    (tmp_path / "slurm.conf").write_text(f"Include {tmp_path}/shadow\n{HEAD}")
    assert run(["conf", "check", str(tmp_path)]) == 1
    out = "".join(capsys.readouterr())
    assert WORD not in out and "9 of 9 lines have no Key=Value" in out
