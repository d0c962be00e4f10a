"""Where the tools are that checks use, and slurmd's plug-ins that detect GPUs ("gpu_nvml.so"); "" is looked for and
not there. The tools' names come with the probe; plug-ins are told of only where slurmd's folder of them was found."""

from __future__ import annotations

from hpcadmin.errors import ParseError
from hpcadmin.facts._base import clean, lines_of, quote

NAME = "tools"
# TOOLS is set by the probe's beginning. PluginDir= is a list of folders; else they are beside slurmd's own. A folder
# without gres_gpu.so is none of slurmd's, and tells nothing.
COMMAND = r"""
for t in $TOOLS; do printf '%s ' "$t"; command -v "$t" || echo; done
s=$(command -v slurmd) || return 0
s=$(readlink -f "$s" 2>/dev/null || echo "$s")
p=${s%/*}; p=${p%/*}; d=
for c in "$SLURM_CONF" /etc/slurm/slurm.conf /run/slurm/conf/slurm.conf "$p/etc/slurm.conf"; do
  if [ -r "$c" ]; then
    d=$(sed -n 's/^[[:blank:]]*[Pp][Ll][Uu][Gg][Ii][Nn][Dd][Ii][Rr]=\([^[:blank:]#]*\).*/\1/p' "$c" | tail -n 1); break
  fi
done
if [ -n "$d" ]; then IFS=:; set -- $d; unset IFS
else set -- "$p"/lib64/slurm "$p"/lib/slurm "$p"/lib/slurm-wlm "$p"/lib/*/slurm "$p"/lib/*/slurm-wlm
fi
f=
for d in "$@"; do [ -e "$d/gres_gpu.so" ] && f=1; done
[ -n "$f" ] || return 0
for t in gpu_nvml.so gpu_nvidia.so gpu_rsmi.so gpu_oneapi.so; do
  f=; for d in "$@"; do [ -z "$f" ] && [ -e "$d/$t" ] && f=$d/$t; done
  printf '%s %s\n' "$t" "$f"
done
"""


def parse(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in lines_of(text, "command -v"):
        name, separator, path = line.strip("\r").partition(" ")
        if not separator or not name:
            raise ParseError(f"{quote(line)} is not a tool and its path")
        # command -v also prints the names of functions and aliases: these are no programs.
        found[name] = clean(path, 1000) if path.startswith("/") else ""
    return found
