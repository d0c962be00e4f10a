"""NHC's checks of files (lbnl_file): contents, tests as of bash's test, ownership, mode and age."""

import os
import stat

from hpcadmin.health.node.api import NoAnswer
from hpcadmin.health.node.nhc_base import Died, Nhc
from hpcadmin.health.node.nhc_read import joined
from hpcadmin.health.node.nhc_words import split

MAX_FILE = 8 << 20
TESTS = "abcdefghkprstuwxOGLSN"


def check_file_contents(nhc: Nhc, args: "list[str]") -> None:
    """Every expression must match a line, one after ! none. Backslashes of the file are dropped, as by NHC."""
    path, expressions = (args + [""])[0], args[1:]
    text = _content(nhc, path)
    missing = [expression for expression in expressions if expression[:1] != "!"]
    only_wanted = len(missing) == len(expressions) > 0
    for line in text:
        for expression in expressions:
            if expression[:1] == "!":
                if nhc.matches(line, expression[1:]):
                    raise Died("%s: a line matches %s" % (path, expression[1:]))
            elif expression in missing and nhc.matches(line, expression):
                missing = [other for other in missing if other != expression]
                if not missing and only_wanted:
                    return
    if missing:
        raise Died("%s: no line matches %s" % (path, missing[0]))
    if not expressions:
        nhc.notice("no expression is named: nothing is tested")


def _content(nhc: Nhc, path: str) -> "list[str]":
    try:
        kind = nhc.door.stat(path).st_mode
        if not stat.S_ISREG(kind) and not stat.S_ISDIR(kind):
            raise NoAnswer("%s is no regular file" % path)
        data = nhc.door.data(path, MAX_FILE + 1)
    except OSError as exc:
        nhc.notice("%s: %s; for NHC that is an empty file" % (path, exc.strerror))
        return []
    if len(data) > MAX_FILE:
        raise NoAnswer("%s is larger than %d MiB" % (path, MAX_FILE >> 20))
    text = data.decode("utf-8", "surrogateescape")
    if "\\" not in text:
        return [line.strip(" \t") for line in text.split("\n")[:-1]]
    return [line for _, line, whole in joined(text) if whole]


def check_file_test(nhc: Nhc, args: "list[str]") -> None:
    tests, paths, negative = [], [], False
    for word in args:
        if len(word) == 2 and word[0] == "-" and word[1] in TESTS:
            tests.append(word[1])
        elif word == "-!":
            negative = True
        elif word[:1] == "-":
            raise Died("no test %s" % word)
        else:
            paths.append(word)
    if not tests or not paths:
        raise Died("a test and a file must be named")
    for test in tests:
        for path in paths:
            if not _again(nhc, test, path):
                if negative:
                    return
                raise Died("-%s %s is not so" % (test, path))
    if negative:
        raise Died("-%s %s is so" % (tests[-1], paths[-1]))


def _again(nhc: Nhc, test: str, path: str) -> bool:
    """NHC evaluates the path a second time: with a blank in it there are two words, and the test fails."""
    words = split(path, nhc.names)
    if not words:
        nhc.notice("an empty name passes every test in NHC")
        return True
    if len(words) > 1:
        nhc.notice("%s: NHC fails at the blank in the name" % path)
        return False
    return holds(nhc, test, words[0].text)


def holds(nhc: Nhc, test: str, path: str) -> bool:
    """test -X path."""
    if test == "t":
        return False
    if test in "rwx":
        nhc.door.at("test of " + path)
        mode = {"r": os.R_OK, "w": os.W_OK, "x": os.X_OK}[test]
        return os.access(nhc.door.root + path, mode, effective_ids=True)
    try:
        seen = nhc.door.stat(path, follow=test not in "hL")
    except OSError:
        return False
    kinds = {"b": stat.S_ISBLK, "c": stat.S_ISCHR, "d": stat.S_ISDIR, "f": stat.S_ISREG, "h": stat.S_ISLNK,
             "L": stat.S_ISLNK, "p": stat.S_ISFIFO, "S": stat.S_ISSOCK}
    if test in kinds:
        return kinds[test](seen.st_mode)
    bits = {"g": stat.S_ISGID, "k": stat.S_ISVTX, "u": stat.S_ISUID}
    if test in bits:
        return bool(seen.st_mode & bits[test])
    return {"a": True, "e": True, "s": seen.st_size > 0, "O": seen.st_uid == os.geteuid(),
            "G": seen.st_gid == os.getegid(), "N": seen.st_mtime_ns > seen.st_atime_ns}[test]


def check_file_stat(nhc: Nhc, args: "list[str]") -> None:
    wanted, paths = nhc.options("D:G:M:N:O:T:U:d:g:m:n:o:t:u:", args)
    want = {"D" if key == "d" else key: value for key, value in wanted if value}
    if not paths:
        nhc.notice("no file is named: nothing is tested")
    for path in paths:
        try:
            seen = nhc.door.stat(path, follow=False)
        except OSError as exc:
            raise Died("%s: %s" % (path, exc.strerror)) from exc
        _ages(nhc, path, want, seen)
        _numbers(nhc, path, want, seen)
        _owners(nhc, path, want, seen)


def _ages(nhc: Nhc, path: str, want: "dict[str, str]", seen: os.stat_result) -> None:
    now = int(nhc.door.now())
    for key, moment, operator in (("N", seen.st_ctime, "lt"), ("O", seen.st_ctime, "ge"), ("n", seen.st_mtime, "lt"),
                                  ("o", seen.st_mtime, "ge")):
        if key in want:
            border = nhc.numbers.expand("%d-(%s)" % (now, want[key]))
            if nhc.numbers.test(str(int(moment)), operator, str(border)):
                what, wanted = "ctime" if key in "NO" else "mtime", "newer" if operator == "lt" else "older"
                raise Died("%s: its %s is not %s than %s s" % (path, what, wanted, want[key]))


def _numbers(nhc: Nhc, path: str, want: "dict[str, str]", seen: os.stat_result) -> None:
    special = stat.S_ISCHR(seen.st_mode) or stat.S_ISBLK(seen.st_mode)
    mode = stat.S_IMODE(seen.st_mode)
    device = seen.st_rdev if special else 0
    actual = {"D": seen.st_dev, "t": os.major(device), "T": os.minor(device), "m": mode}
    for key, what in (("D", "device number"), ("t", "major number"), ("T", "minor number"), ("m", "mode")):
        if key in want and nhc.numbers.test(str(actual[key]), "ne", want[key]):
            if key == "m" and want[key][0] != "0":
                nhc.notice("a mode without a leading 0 is a decimal number for NHC")
            found = "%#o" % mode if key == "m" else actual[key]
            raise Died("%s: %s is %s, not %s" % (path, what, found, want[key]))
    if "M" in want:
        bits = nhc.numbers.expand("%d & (%s)" % (mode, want["M"]))
        if nhc.numbers.test(str(bits), "ne", want["M"]):
            raise Died("%s: mode is %#o, not at least %s" % (path, mode, want["M"]))


def _owners(nhc: Nhc, path: str, want: "dict[str, str]", seen: os.stat_result) -> None:
    actual = {"g": str(seen.st_gid), "u": str(seen.st_uid)}
    if "U" in want:
        name = nhc.passwd().get(seen.st_uid) or nhc.door.user(seen.st_uid)
        actual["U"] = "UNKNOWN" if name == str(seen.st_uid) else name
    if "G" in want:
        actual["G"] = _group(nhc, seen.st_gid)
    for key in "guGU":
        if key in want and want[key] != actual[key]:
            raise Died("%s: its %s is %s, not %s" % (path, "group" if key in "gG" else "owner", actual[key], want[key]))


def _group(nhc: Nhc, gid: int) -> str:
    for line in nhc.door.lines("/etc/group"):
        fields = line.split(":")
        if len(fields) > 2 and fields[2] == str(gid):
            return fields[0]
    import grp
    nhc.door.at("name of group %d" % gid)
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return "UNKNOWN"

