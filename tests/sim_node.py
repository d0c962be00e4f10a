"""A simulated node's answers to the probe, without a lab: the profile's tree in place of /sys, and its stand-ins."""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

from hpcadmin.facts import new_token, probe_script
from hpcadmin.lab import hardware


@cache
def tree(profile: str) -> Path:
    folder = Path(mkdtemp(prefix=f"hpcadmin-{profile}-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    hardware.build(hardware.load_profile(profile), folder, "node01")
    (folder / "sys/class/net/lo").mkdir(parents=True)
    (folder / "sys/class/net/lo/type").write_text("772\n")
    return folder


def capture(profile: str, *, faults: str = "", shell: str = "sh") -> str:
    """The capture of a node of the profile."""
    root = tree(profile)
    text = probe_script()
    for path, place in (("/sys/", f"{root}/sys/"), ("/proc/driver/nvidia", f"{root}/proc/driver/nvidia"),
                        ("/etc/hpcadmin/simulated", f"{root}/simulated"),
                        ("; export HWLOC_COMPONENTS", f"; HWLOC_XMLFILE={root}/hwloc.xml; export HWLOC_XMLFILE"),
                        # No device nodes without root: a list of what would be there.
                        ("for f in /dev/nvidia[0-9]*; do [ -c \"$f\" ] && echo \"file $f\"; done",
                         f"for f in {root}/sys/bus/pci/drivers/nvidia/0*; do n=$((${{n:--1}}+1)); "
                         "echo \"file /dev/nvidia$n\"; done")):
        text = text.replace(path, place)
    faults_file = root / "faults"
    faults_file.write_text(faults)
    done = subprocess.run([shell, "-s", "--", new_token()], input=text, capture_output=True, text=True, check=True,
                          timeout=60, env={**os.environ, "PATH": f"{root}/bin:{os.environ['PATH']}",
                                           "HPCADMIN_SIM_DIR": str(root), "HPCADMIN_SIM_FAULTS": str(faults_file)})
    assert not done.stderr, done.stderr
    return done.stdout
