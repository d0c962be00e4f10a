"""Its place makes the modules beside it importable from every test."""

import gc
import os
import signal
from pathlib import Path

import pytest
from hypothesis import Phase, settings

# Tests make and drop much, and little of it in circles: to look for those after each 700 objects costs more than it
# frees.
gc.set_threshold(100_000, 20, 20)

os.environ.pop("COLUMNS", None)     # pytest-xdist sets it, and tables are as wide as it says

# How long an example takes says what else the machine does. The same examples each time, so that a failure is about the
# change that is tested; HPCADMIN_RANDOM=1 looks for new ones, and says which parts of a failing example matter:
# for that every example is traced, which costs more than many of them do themselves.
RANDOM = bool(os.environ.get("HPCADMIN_RANDOM"))
settings.register_profile("hpcadmin", deadline=None, derandomize=not RANDOM,
                          phases=[phase for phase in Phase if RANDOM or phase is not Phase.explain])
settings.load_profile("hpcadmin")

if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:       # as shells start what runs in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:       # as nohup does
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_collection_finish() -> None:
    """Thousands of collected tests stay until the end: no collection of garbage need look at them again and again."""
    gc.collect()
    gc.freeze()


def pytest_runtest_teardown() -> None:
    """The program of the nodes sets an alarm and ends; called in this process, it must not hit a later test."""
    signal.setitimer(signal.ITIMER_REAL, 0)


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of all runs, which the command line finds by itself; it is not there yet."""
    monkeypatch.setenv("HPCADMIN_DIR", str(tmp_path))
    monkeypatch.delenv("HPCADMIN_SITE", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "runs"
