"""Its place makes the modules beside it importable from every test."""

import os
import signal

from hypothesis import settings

os.environ.pop("COLUMNS", None)     # pytest-xdist sets it, and tables are as wide as it says

# How long an example takes says what else the machine does. The same examples each time, so that a failure is about the
# change that is tested; HPCADMIN_RANDOM=1 looks for new ones.
settings.register_profile("hpcadmin", deadline=None, derandomize=not os.environ.get("HPCADMIN_RANDOM"))
settings.load_profile("hpcadmin")

if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:       # as shells start what runs in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)
