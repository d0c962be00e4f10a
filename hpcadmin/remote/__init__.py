"""One narrow door to other machines: run this command there, feed it this, get a CommandResult; a dead host is one."""

from hpcadmin.remote.base import CommandResult, Remote, fan_out

__all__ = ["CommandResult", "Remote", "fan_out"]
