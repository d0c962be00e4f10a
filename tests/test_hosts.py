"""Hostlists that would fill the memory are refused before anything is made of them."""

from __future__ import annotations

import time

import pytest

from hpcadmin.errors import UsageError
from hpcadmin.hosts import expand


@pytest.mark.parametrize("hostlist", [
    "a[1-999999]", "a[1-9999]b[1-9999]", "n1,a[1-50000,60000-150000]-ib0", "a[1-" + "9" * 5000 + "]"])
def test_too_many_names(hostlist: str) -> None:
    begun = time.process_time()
    with pytest.raises(UsageError, match="has more than 100000 names"):
        expand(hostlist)
    assert time.process_time() - begun < 0.5


@pytest.mark.parametrize(("hostlist", "count"), [
    ("a[1-3]", 3), ("a[1,3-4]b[1-2]c", 6), ("a[1-99999/50000]", 2), ("a[1-9]!a[2-3]", 7), ("a[01-04],b,a03", 5)])
def test_others_are_counted_right(hostlist: str, count: int) -> None:
    assert len(expand(hostlist)) == count
