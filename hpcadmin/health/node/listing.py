"""The checks and their parameters, for --list."""

import os

from hpcadmin.health.node import load
from hpcadmin.health.node.api import REQUIRED, Check


def listing(folder: str = "") -> str:
    checks = [load.named(name) for name in load.names()]
    if folder:
        checks += [load.site(os.path.join(folder, name), name[:-3]) for name in sorted(os.listdir(folder))
                   if name.endswith(".py") and name[0] != "_"]
    return "".join(_one(check) for check in checks)


def _one(check: Check) -> str:
    lines = ["%s  %s%s\n" % (check.name, check.title, "  [hardware]" if check.hardware else "")]
    for param in check.params:
        default = "must be given" if param.default is REQUIRED else "" if param.default is None else "default %s" % (
            "[%s]" % ", ".join(map(str, param.default)) if isinstance(param.default, (list, tuple)) else param.default)
        choices = " (%s)" % "|".join(param.choices) if param.choices else ""
        lines.append("    %-24s %-8s %s%s%s\n" % (param.name, param.kind, param.text, choices,
                                                  "; " + default if default else ""))
    return "".join(lines)
