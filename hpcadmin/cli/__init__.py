"""The command line's root. Each noun is a module here, imported only when it is used."""

from __future__ import annotations

import contextlib
import errno
import importlib
import io
import os
import stat
import sys
from typing import Any, TextIO

import click

from hpcadmin import __version__
from hpcadmin.errors import EXIT_INTERRUPTED, EXIT_UNREACHABLE, EXIT_USAGE, HpcadminError

# name -> (module with a click command `command`, one line for --help): known here so that --help imports nothing.
COMMANDS = {
    "discover": ("hpcadmin.cli.discover", "Find out what each node really is."),
    "inventory": ("hpcadmin.cli.inventory", "Show what was discovered."),
    "conf": ("hpcadmin.cli.conf", "Slurm's configuration files, and why each line."),
    "validate": ("hpcadmin.cli.validate", "Prove the cluster with tests run through sbatch."),
    "report": ("hpcadmin.cli.report", "Tables, pages and files of a run."),
    "runs": ("hpcadmin.cli.runs", "List, compare, keep, seal, cancel and judge runs."),
    "checks": ("hpcadmin.cli.checks", "One check, or an output you already have."),
    "limits": ("hpcadmin.cli.limits", "The catalogue of limits."),
    "health": ("hpcadmin.cli.health", "What the nodes run to look at themselves."),
    "sweep": ("hpcadmin.cli.sweep", "Look at all nodes every night: drain, resume, tell."),
    "lab": ("hpcadmin.cli.lab", "A real Slurm cluster on this machine."),
}


class LazyGroup(click.Group):
    """A group whose commands are imported when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command = importlib.import_module(COMMANDS[cmd_name][0]).command
        assert isinstance(command, click.Command)  # noqa: S101
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(__version__, prog_name="hpcadmin")
@click.option("--site", metavar="FILE", help="The site's file (else $HPCADMIN_SITE, ./site.toml, "
              "~/.config/hpcadmin/site.toml, /etc/hpcadmin/site.toml).")
@click.pass_context
def root(ctx: click.Context, site: str | None) -> None:
    """Discover, configure, prove and keep healthy a Slurm cluster with GPUs."""
    ctx.obj = {"site": site}


def main() -> None:
    """Entry point: one line for every deliberate error, with its exit status; no traceback reaches the user."""
    if sys.stdout is not None:          # it is, where the caller has closed it
        sys.stdout = _for_anybody(sys.stdout)
    sys.exit(run(sys.argv[1:]))


class _Unread(io.FileIO):
    """stdout, whose reader may go away (head, less, a lost terminal): the command goes on, does what it has to do, and
    ends with the status that it would have had. An error would end `runs prune` half way, and a run that failed must
    not be 0 for those who read its first lines only."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError as exc:
            gone = isinstance(exc, BrokenPipeError) or (exc.errno == errno.EIO and _is_terminal())
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.fileno())             # Python must not complain again at exit
            os.close(nowhere)
            if not gone:
                raise
            return len(data)


def _for_anybody(stream: TextIO) -> TextIO:
    """What an encoding has no sign for is written as \\uNNNN."""
    fd = stream.fileno()
    errors = "backslashreplace" if stream.errors == "strict" else stream.errors
    return io.TextIOWrapper(io.BufferedWriter(_Unread(fd, "w", closefd=False)), stream.encoding, errors,
                            line_buffering=stream.isatty())


def run(args: list[str]) -> int:
    """The exit status of `hpcadmin ARGS`."""
    debug = bool(os.environ.get("HPCADMIN_DEBUG"))
    try:
        result = root.main(args, prog_name="hpcadmin", standalone_mode=False)
        put("")                         # what is still to be written may fail, and here that is told
        return result if isinstance(result, int) else 0
    except HpcadminError as exc:
        complain(str(exc))
        return exc.exit_status
    except click.exceptions.NoArgsIsHelpError as exc:
        exc.show()
        return EXIT_USAGE
    except click.ClickException as exc:
        hint = f" (see {exc.ctx.command_path} --help)" if isinstance(exc, click.UsageError) and exc.ctx else ""
        complain(f"{exc.format_message()}{hint}")
        return EXIT_USAGE
    except (click.Abort, KeyboardInterrupt):
        complain("interrupted")
        return EXIT_INTERRUPTED
    except OSError as exc:
        if debug:
            raise
        complain(f"{exc.filename or 'system'}: {exc.strerror or exc}")
        return EXIT_USAGE
    except RecursionError:
        complain("input is nested too deeply")
        return EXIT_USAGE
    except Exception as exc:  # the command line's root: a defect of ours, said in one line
        if debug:
            raise
        complain(f"internal error: {type(exc).__name__}: {exc} (set HPCADMIN_DEBUG=1 for the traceback, and report it)")
        return EXIT_UNREACHABLE


def put(text: str) -> None:
    """A command's answer, written at once: what goes wrong is told here."""
    if sys.stdout is not None:
        sys.stdout.write(text)
        sys.stdout.flush()


def _is_terminal() -> bool:
    """Or was one: isatty() is false of a terminal that has gone away."""
    return stat.S_ISCHR(os.fstat(sys.stdout.fileno()).st_mode)


def say(text: str) -> None:
    """A line beside a command's answer; its exit status does not depend on whether anybody is there to read it."""
    from hpcadmin.text import printable
    with contextlib.suppress(OSError, AttributeError):
        sys.stderr.write(f"{printable(text)}\n")
        sys.stderr.flush()


def complain(text: str) -> None:
    from hpcadmin.text import printable
    with contextlib.suppress(OSError, AttributeError):      # closed
        sys.stderr.write(f"hpcadmin: {printable(text)}\n")
