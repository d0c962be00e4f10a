"""A job given to Slurm once, whatever becomes of the answer: never twice, never lost."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from hpcadmin.errors import HpcadminError, SlurmError
from hpcadmin.run_kept import slurm_job
from hpcadmin.slurm.client import Client, NoAnswerError

CONTROLLER_S = 180.0    # that slurmctld may be away while a job is submitted
RETRY_S, SLOWEST_RETRY_S = 2.0, 15.0
SETTLE_S = 5.0          # that a submission without an answer may still lie in slurmctld's queue
MOST_TRIES = 3


def hand_over(client: Client, script: Path, comment: str, *, patience_s: float = CONTROLLER_S,
              say: Callable[[str], None] = lambda text: None) -> int:
    """The id of the job. Without an answer it is looked for by its comment once the controller answers again, twice
    with some seconds between, and only then submitted once more. Raises what Slurm says when it refuses."""
    end = time.monotonic() + patience_s
    for number in range(1, MOST_TRIES + 1):
        try:
            made = client.submit(script, comment=comment)
        except NoAnswerError as exc:
            if time.monotonic() >= end:
                raise
            say("the Slurm controller does not answer; the job may have been taken all the same")
            found = _taken(client, script, comment, end)
            if found is not None:
                return found
            if number == MOST_TRIES:
                raise
            say(f"{exc}; submitting again")
        else:
            return made if number == 1 else only(client, comment, made)
    raise AssertionError


def not_taken(why: HpcadminError) -> str:
    """Why the tests of a job were not run that could not be submitted."""
    what = "its job could not be submitted" if isinstance(why, NoAnswerError) else "Slurm refused its job"
    return f"{what}: {why}"


def _taken(client: Client, script: Path, comment: str, end: float) -> int | None:
    """The job that Slurm has by this comment, or that has begun; None when Slurm twice said that it has none. Raises
    NoAnswerError when it does not answer in time."""
    silent, pause = 0, RETRY_S
    while True:
        begun = slurm_job(script.parent)        # it may be over and forgotten before Slurm answers again
        if begun is not None:
            return begun
        try:
            mine = [job.id for job in client.find(comment) if job.comment == comment]
        except SlurmError as exc:
            if time.monotonic() >= end:
                raise NoAnswerError(exc.what, where=exc.where, hint=exc.hint) from exc
            time.sleep(pause)
            pause = min(pause * 1.5, SLOWEST_RETRY_S)
            continue
        if mine:
            return min(mine)
        silent += 1
        if silent == 2:
            return None
        time.sleep(SETTLE_S)


def only(client: Client, comment: str, made: int) -> int:
    """After a second submission: should both have been taken after all, the first stays and the other is withdrawn."""
    try:
        mine = sorted(job.id for job in client.find(comment) if job.comment == comment)
        client.cancel([number for number in mine if number != mine[0]])
    except SlurmError:
        return made             # the later of two finds the mark of the first in their folder and does nothing
    return mine[0] if mine else made
