"""A process of our own that runs one of our modules: found where this one found it, whatever the working folder is."""

from __future__ import annotations

import sys
from pathlib import Path

# python -m looks into the working folder first: there may be another json.py, or a folder of the name hpcadmin.
_BEGIN = ("import sys; source = sys.argv.pop(1); sys.path[:] = [path for path in sys.path if path]; "
          "sys.path += [source] * (source not in sys.path); "
          "import runpy; runpy.run_module(sys.argv.pop(1), run_name='__main__', alter_sys=True)")


def module_argv(module: str, *words: str) -> list[str]:
    return [sys.executable, "-c", _BEGIN, str(Path(__file__).resolve().parent.parent), module, *words]
