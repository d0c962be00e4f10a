"""Writes hpcadmin-health: the node's part one file for any Python from 3.6 on."""

from __future__ import annotations

import ast
import functools
import io
import zipfile
from pathlib import Path

from hpcadmin import __version__
from hpcadmin.errors import SiteError, UsageError
from hpcadmin.files import write_atomic
from hpcadmin.health.node.version import VERSION

NODE = Path(__file__).resolve().parent / "node"
PYTHONS = ("/usr/bin/python3", "/usr/libexec/platform-python", "/usr/local/bin/python3")
DATE = (2020, 1, 1, 0, 0, 0)         # always the same: the file depends on its content alone

# -I: nothing from the environment or the user's folders; -S: no site-packages; -B: nothing is written beside it.
HEADER = """\
#!/bin/sh
# hpcadmin-health {version}: a zip file behind these lines; unzip -l shows what is in it.
for python in {pythons}; do
  [ -x "$python" ] && exec "$python" -I -S -B -c '{start}' "$0" "$@"
done
echo "hpcadmin-health: no Python here (looked for {pythons})" >&2
case " $* " in *" --as"*) exit 0 ;; esac
exit 3
"""


def build(python: str | None = None) -> bytes:
    """The file's bytes. python: looked for before the usual places."""
    if __version__ != VERSION:
        raise SiteError(f"is {VERSION}, the package is {__version__}", where="hpcadmin/health/node/version.py")
    pythons = ((python,) if python else ()) + PYTHONS
    for one in pythons:
        if not one.startswith("/") or not all(c.isalnum() or c in "/._-+" for c in one):
            raise UsageError(f"{one!r} is no path of a Python", hint="as in /usr/bin/python3.9")
    stream = io.BytesIO()
    stream.write(HEADER.format(version=VERSION, pythons=" ".join(pythons), start=start()).encode())
    with zipfile.ZipFile(stream, "a", zipfile.ZIP_STORED) as archive:
        for name, text in sorted(parts().items()):
            entry = zipfile.ZipInfo(name, DATE)
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, text)
    return stream.getvalue()


def start() -> str:
    """The Python in the file's head: not as a zip file's __main__, since Python's own way there takes 5 ms."""
    lines = [line for line in (NODE / "start.py").read_text().splitlines() if line.strip() and line.strip()[0] != "#"]
    text = "\n".join(line.partition("  #")[0] for line in lines)
    ast.parse(text)
    if "'" in text:
        raise SiteError("has a quote that ends the shell's", where="hpcadmin/health/node/start.py")
    return text


def parts() -> dict[str, str]:
    """Name in the file -> text. The packages above are empty: on a node there is nothing else of them."""
    found = {"hpcadmin/__init__.py": "", "hpcadmin/health/__init__.py": ""}
    found["__main__.py"] = (NODE / "boot.py").read_text()
    for path in sorted(NODE.rglob("*.py")):
        if path.name == "__main__.py":
            continue
        text = path.read_text()
        _sound(text, str(path))
        found["hpcadmin/health/node/" + path.relative_to(NODE).as_posix()] = text
    return found


@functools.cache
def _sound(text: str, name: str) -> None:
    """Raises SyntaxError where it is no Python. Once for each text: ast takes 0.1 s for all of them."""
    ast.parse(text, name)


def write(path: Path, python: str | None = None) -> int:
    """Writes the file, executable, and tells its size."""
    data = build(python)
    write_atomic(path, data, mode=0o755)
    path.chmod(0o755)
    return len(data)
