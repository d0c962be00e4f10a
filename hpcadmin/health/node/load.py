"""Finds checks: ours by name, a site's from its folder if nobody else can have written there."""

import os

from hpcadmin.health.node import trust
from hpcadmin.health.node.api import BadConfig, Check

PACKAGE = "hpcadmin.health.node.checks"


def named(name: str, folder: str = "") -> Check:
    """The check of this name. Only its own file is read."""
    if not name or len(name) > 60 or not all(c.islower() or c.isdecimal() or c == "_" for c in name) or name[0] == "_":
        raise BadConfig("no check can be called %r" % name[:60])
    try:
        module = __import__("%s.%s" % (PACKAGE, name), fromlist=["CHECK"])
    except ImportError as exc:
        if getattr(exc, "name", None) != "%s.%s" % (PACKAGE, name):
            raise
    else:
        return _declared(name, module.__dict__)
    if not folder:
        raise BadConfig("there is no check %s" % name)
    path = os.path.join(folder, name + ".py")
    if not os.path.lexists(path):
        raise BadConfig("there is no check %s, and no %s" % (name, path))
    return site(path, name)


def site(path: str, name: str) -> Check:
    """A check of the site's."""
    text = trust.read(path)
    space = {"__name__": "hpcadmin_site_check_" + name, "__file__": path}  # type: dict[str, object]
    try:
        exec(compile(text, path, "exec"), space)  # noqa: S102 - root's own file, as trusted as any program in its PATH
    except Exception as exc:  # a check of somebody else's: whatever is wrong with it is said
        raise BadConfig("%s: %s: %s" % (path, type(exc).__name__, exc)) from exc
    return _declared(name, space)


def _declared(name: str, space: "dict[str, object]") -> Check:
    check = space.get("CHECK")
    if not isinstance(check, Check) or check.name != name:
        raise BadConfig("%s.py does not hold CHECK with the name %s" % (name, name))
    return check


def names() -> "list[str]":
    """The names of all our checks."""
    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "checks")
    if os.path.isdir(folder):
        files = os.listdir(folder)
    else:                                       # in the zipapp
        import zipfile
        archive, _, inner = folder.partition("/hpcadmin/health/")
        with zipfile.ZipFile(archive) as opened:
            files = [name.rpartition("/")[2] for name in opened.namelist()
                     if name.startswith("hpcadmin/health/" + inner + "/")]
    return sorted(name[:-3] for name in files if name.endswith(".py") and name[0] != "_")
