"""What all web hooks have: an address, which is a secret where it holds a token."""

from __future__ import annotations

from dataclasses import dataclass

from hpcadmin.sweep.alarms.http import url_problem
from hpcadmin.sweep.alarms.secret import secret


@dataclass(frozen=True)
class Hook:
    url: str = ""                        # the address; in a file or the environment where it holds a secret
    url_file: str = ""
    url_env: str = ""
    ca_file: str = ""                    # whom its certificate must be signed by; "": the system's
    plain_http: bool = False             # http:// to another host than this one


def address(settings: Hook) -> str:
    return settings.url or secret(settings.url_file, settings.url_env, "address")


def hook_problem(settings: Hook) -> tuple[str, str] | None:
    given = [name for name in ("url", "url_file", "url_env") if getattr(settings, name)]
    if len(given) != 1:
        return given[1] if given else "url", "exactly one of url, url_file and url_env must be there"
    if settings.url and (wrong := url_problem(settings.url, plain_http=settings.plain_http)):
        return "url", wrong
    return None


def secret_hook_problem(settings: Hook) -> tuple[str, str] | None:
    """For hooks whose address is a secret: it does not belong into site.toml."""
    if settings.url:
        return "url", "holds a secret: put it into a file (chmod 600), and name that as url_file"
    return hook_problem(settings)
