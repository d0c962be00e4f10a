"""Every error that hpcadmin raises on purpose; the command line prints it as one line and uses its exit status."""

from __future__ import annotations

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INCOMPLETE = 3
EXIT_UNREACHABLE = 4
EXIT_INTERRUPTED = 130


class HpcadminError(Exception):
    """Root of all deliberate errors.

    what: what is wrong, in one line. where: file:line, node or tool. hint: what the reader can do.
    """

    exit_status = EXIT_USAGE

    def __init__(self, what: str, *, where: str | None = None, hint: str | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.hint = hint

    def __str__(self) -> str:
        text = f"{self.where}: {self.what}" if self.where else self.what
        return f"{text} ({self.hint})" if self.hint else text


class UsageError(HpcadminError):
    """The command line asks for something that does not exist or does not fit together."""


class SiteError(HpcadminError):
    """A file of the site (site.toml, suite, limits, check) is wrong; where is file:line."""


class ParseError(HpcadminError):
    """A text is not what its tool prints: empty, cut off, contradictory or of another tool."""

    exit_status = EXIT_INCOMPLETE


class RemoteError(HpcadminError):
    """A node could not be used at all (ssh, name, key); a dead node among many is a value, not this."""

    exit_status = EXIT_UNREACHABLE


class SlurmError(HpcadminError):
    """Slurm did not answer, or refused what was asked."""

    exit_status = EXIT_UNREACHABLE


class StoreError(HpcadminError):
    """A run folder or another file of ours cannot be written or read."""


class LabError(HpcadminError):
    """The lab cluster could not be started, changed or ended."""

    exit_status = EXIT_UNREACHABLE
