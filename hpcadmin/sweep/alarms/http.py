"""One POST of JSON: TLS verified, no redirect followed, answer bounded, addresses and tokens in no error."""

from __future__ import annotations

import http.client
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from hpcadmin.records import dumps
from hpcadmin.sweep.alarms.model import AlarmError
from hpcadmin.sweep.alarms.secret import scrubbed
from hpcadmin.text import printable

MAX_ANSWER_BYTES = 64 * 1024
_HERE = ("127.0.0.1", "::1", "localhost")


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Who is sent elsewhere would take the secret along."""

    def redirect_request(self, *_args: Any, **_named: Any) -> None:
        return None


def url_problem(url: str, *, plain_http: bool = False) -> str:
    """What is wrong with an address; never says the address."""
    try:
        parts = urlsplit(url)
        port, host = parts.port, parts.hostname or ""
    except ValueError:
        return "is no address"
    if not url.isascii() or not url.isprintable() or " " in url or not host or port == 0:
        return "is no address"
    if parts.username is not None or parts.fragment:
        return "must have no user and no fragment"
    if parts.scheme == "https" or (parts.scheme == "http" and (plain_http or host in _HERE)):
        return ""
    return "must begin with https://" if parts.scheme == "http" else "must be an address of https"


def post(url: str, tree: Any, timeout_s: float, *, headers: Mapping[str, str] | None = None, ca_file: str = "",
         secrets: tuple[str, ...] = (), plain_http: bool = False) -> str:
    """The answer to a POST of JSON, when its status was 2xx. url: what is behind its host counts as a secret."""
    if wrong := url_problem(url, plain_http=plain_http):
        raise AlarmError(f"the address {wrong}")
    parts = urlsplit(url)
    host = parts.netloc
    hidden = (url, *((f"{parts.path}?{parts.query}", parts.query) if parts.query else ()),
              *((parts.path,) if len(parts.path) > 1 else ()), *secrets)
    request = urllib.request.Request(url, data=dumps(tree).encode(), method="POST", headers={  # noqa: S310
        "Content-Type": "application/json; charset=utf-8", "User-Agent": "hpcadmin", **(headers or {})})
    try:
        context = ssl.create_default_context(cafile=ca_file or None)
        # What is meant for this host goes to no proxy of the environment: without TLS it would read the secret.
        own = [urllib.request.ProxyHandler({})] if parts.hostname in _HERE else []
        opener = urllib.request.build_opener(_NoRedirect, urllib.request.HTTPSHandler(context=context), *own)
        with opener.open(request, timeout=timeout_s) as answer:
            return str(answer.read(MAX_ANSWER_BYTES).decode("utf-8", "replace"))
    except urllib.error.HTTPError as exc:
        with exc:
            said = exc.read(2000).decode("utf-8", "replace").strip()
        raise AlarmError(f"answered {exc.code}{_said(said, hidden)}", where=host) from None
    except urllib.error.URLError as exc:
        why = exc.reason if isinstance(exc.reason, str) else _reason(exc.reason)
        raise AlarmError(f"could not be used{_said(why, hidden)}", where=host) from None
    except (OSError, http.client.HTTPException, ValueError) as exc:
        raise AlarmError(f"could not be used{_said(_reason(exc), hidden)}", where=host) from None


def _reason(exc: BaseException) -> str:
    if isinstance(exc, TimeoutError):
        return "no answer in time"
    if isinstance(exc, ssl.SSLCertVerificationError):
        return f"its certificate: {exc.verify_message}"
    return str(getattr(exc, "strerror", "") or exc) or type(exc).__name__


def _said(text: str, hidden: tuple[str, ...]) -> str:
    text = printable(scrubbed(" ".join(text.split()), *hidden), limit=200)
    return f": {text}" if text else ""
