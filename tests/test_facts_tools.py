"""Tools and slurmd's plug-ins as the probe's own shell looks for them, in made-up folders."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from hpcadmin.facts import tools


def look(tmp_path: Path, conf: str = "", *, slurmd: bool = True) -> dict[str, str]:
    """What the fact says where slurmd is in tmp_path/sbin, and slurm.conf as given."""
    (tmp_path / "sbin").mkdir(exist_ok=True)
    if slurmd:
        (tmp_path / "sbin/slurmd").write_text("#!/bin/sh\n")
        (tmp_path / "sbin/slurmd").chmod(0o755)
    (tmp_path / "slurm.conf").write_text(conf)
    script = f"fact() {{\n{tools.COMMAND}\n}}\nfact; echo status=$?"
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, timeout=20, check=False, env={
        "PATH": f"{tmp_path}/sbin:/usr/bin:/bin" if slurmd else "/usr/bin:/bin", "TOOLS": "sh no_such_tool",
        "SLURM_CONF": str(tmp_path / "slurm.conf")})
    text, _, status = done.stdout.rpartition("status=")
    assert (status, done.stderr) == ("0\n", "")
    return tools.parse(text)


def plugins(folder: Path, *names: str) -> Path:
    folder.mkdir(parents=True)
    for name in names:
        (folder / name).touch()
    return folder


def test_tools_that_are_there_and_not() -> None:
    assert tools.parse("sh /usr/bin/sh\nno_such_tool \nls ls\n") == {"sh": "/usr/bin/sh", "no_such_tool": "", "ls": ""}


@pytest.mark.parametrize("folder", ["lib64/slurm", "lib/slurm", "lib/x86_64-linux-gnu/slurm-wlm", "lib/slurm-wlm"])
def test_plugins_beside_slurmd(tmp_path: Path, folder: str) -> None:
    place = plugins(tmp_path / folder, "gres_gpu.so", "gpu_nvml.so")
    found = look(tmp_path)
    assert found["gpu_nvml.so"] == str(place / "gpu_nvml.so")
    assert (found["gpu_rsmi.so"], found["gpu_oneapi.so"], found["gpu_nvidia.so"]) == ("", "", "")
    assert found["sh"] and found["no_such_tool"] == ""


@pytest.mark.parametrize("key", ["PluginDir", "plugindir", "  PLUGINDIR"])
def test_plugindir_counts_before_where_slurmd_is(tmp_path: Path, key: str) -> None:
    plugins(tmp_path / "lib/slurm", "gres_gpu.so", "gpu_nvml.so")
    one, two = plugins(tmp_path / "one"), plugins(tmp_path / "two", "gres_gpu.so", "gpu_rsmi.so")
    found = look(tmp_path, f"#PluginDir=/nowhere\n{key}={one}:{two} # ours\n")
    assert (found["gpu_nvml.so"], found["gpu_rsmi.so"]) == ("", str(two / "gpu_rsmi.so"))


def test_where_no_folder_of_plugins_is_found_nothing_is_said(tmp_path: Path) -> None:
    plugins(tmp_path / "lib/slurm", "libslurmfull.so")
    assert not any(name.endswith(".so") for name in look(tmp_path))
    assert not any(name.endswith(".so") for name in look(tmp_path, f"PluginDir={tmp_path}/gone\n"))


def test_without_slurmd_nothing_is_said(tmp_path: Path) -> None:
    if Path("/usr/bin/slurmd").exists():
        pytest.skip("slurmd is in /usr/bin here")
    assert set(look(tmp_path, slurmd=False)) == {"sh", "no_such_tool"}
