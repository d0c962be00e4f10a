"""What we make of an nhc.conf's words, globs and numbers is what bash makes of them: bash itself is asked."""

import random
import shutil
import subprocess

import pytest

from hpcadmin.health.node import nhc_arith, nhc_match, nhc_words
from hpcadmin.health.node.nhc_read import joined

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="no bash to compare with")
SEED = 20261130


def bash(script: str, *args: str) -> list[str]:
    done = subprocess.run(["bash", "-c", script, "bash", *args], capture_output=True, text=True, check=False,
                          env={"LC_ALL": "C.UTF-8", "PATH": "/usr/bin:/bin"}, timeout=60)
    return done.stdout.split("\n")[:-1]


def texts(alphabet: str, count: int, longest: int, seed: int) -> list[str]:
    dice = random.Random(SEED + seed)  # noqa: S311 - the same texts each time
    return sorted({"".join(dice.choice(alphabet) for _ in range(dice.randint(1, longest))) for _ in range(count)})


@pytest.mark.parametrize("count", [150, pytest.param(4000, marks=pytest.mark.deep)])
def test_arithmetic(count: int) -> None:
    asked = [text for text in texts("0123789xab+-*/%()<>=!&|^~,?: #", count, 9, 1) if "=" not in text.replace("==", "")
             and "++" not in text and "--" not in text and not text.strip().startswith("#")]
    asked += ["010", "0x1F", "2#101", "08", "1e3", "5%", "1.5", "2**63-1", "9223372036854775807+1", "-7/2", "-7%3", "",
              "1?2:3"]
    told = bash('for e in "$@"; do if [[ $e -eq $e ]] 2>/dev/null; then v=$(echo $((e)) 2>/dev/null); '
                'echo "${v:-error}"; else echo error; fi; done', *asked)
    wrong = []
    for text, value in zip(asked, told, strict=True):
        try:
            ours = str(nhc_arith.evaluate(text, {}))
        except nhc_arith.ArithError:
            ours = "error"
        if ours != value:
            wrong.append((text, ours, value))
    assert not wrong, f"{len(wrong)} of {len(asked)}: {wrong[:20]}"


@pytest.mark.parametrize("count", [150, pytest.param(4000, marks=pytest.mark.deep)])
def test_globs(count: int) -> None:
    names = ["", "a", "ab", "b-1", "a]", "n01", "[a]", "*", "!a", "a*b", "x|y", "n(1)"]
    patterns = texts("ab*?[]!^-01n\\|", count, 7, 2)
    patterns += ["@(a|ab)", "+(a|b)", "?(n)01", "*(a)b", "!(a)", "n!(02)", "[[:alpha:]]*", "[]]", "[!]]", "[a",
                 "n(1)", "a\\*b"]
    told = bash('n=$1; shift; names=("${@:1:n}"); shift $n; for p in "$@"; do r=; for t in "${names[@]}"; do '
                '[[ $t == $p ]] && r+=1 || r+=0; done; echo $r; done', str(len(names)), *names, *patterns)
    wrong = []
    for pattern, value in zip(patterns, told, strict=True):
        ours = "".join("1" if nhc_match.glob_matches(name, pattern) else "0" for name in names)
        if ours != value:
            wrong.append((pattern, ours, value))
    assert not wrong, f"{len(wrong)} of {len(patterns)}: {wrong[:20]}"


@pytest.mark.parametrize("count", [150, pytest.param(4000, marks=pytest.mark.deep)])
def test_words(count: int) -> None:
    """Every line that we take apart has the words of bash; every line that is wrong for us is so for bash."""
    lines = texts("ab '\"\\$V{},.#12", count, 12, 3)
    lines += ["a 'b c' d", 'a "b c" "d\\"e"', "a{b,c}d", "{1..3}", "n{08..11}", "a#b #c", "''", '""', "$V", '"$V"',
              "x$V.y", "${V}z"]
    told = bash('set -f; V="v w"; for l in "$@"; do ( set --; if eval "set -- $l" 2>/dev/null; then printf "%s" $#; '
                'for w in "$@"; do printf " <%s>" "$w"; done; echo; else echo error; fi ) 2>/dev/null || echo error; '
                'done', *lines)
    assert len(told) == len(lines)
    wrong, looked = [], 0
    for line, value in zip(lines, told, strict=True):
        try:
            words = [word.text for word in nhc_words.split("x " + line, {"V": "v w"})][1:]
        except nhc_words.NotRun:
            continue
        except nhc_words.WrongSyntax:
            ours = "error"
        else:
            ours = f"{len(words)}" + "".join(f" <{word}>" for word in words)
        looked += 1
        if ours != value:
            wrong.append((line, ours, value))
    assert looked > len(lines) / 3
    assert not wrong, f"{len(wrong)} of {looked}: {wrong[:20]}"


@pytest.mark.parametrize("count", [100, pytest.param(3000, marks=pytest.mark.deep)])
def test_lines_of_a_file(count: int) -> None:
    for text in texts("ab \t\\\n|#", count // 10, 60, 4):
        told = bash('while read LINE; do printf "<%s>\\n" "$LINE"; done <<< "$1"', text)
        assert [f"<{line}>" for _, line, whole in joined(text + "\n") if whole] == told, repr(text)


def test_regular_expressions_are_those_of_the_c_library() -> None:
    matcher = nhc_match.Matcher()
    cases = [("a.c", "/a\\.c/", True), ("abc", "/a\\.c/", False), ("x 1", "/[[:space:]][0-9]+$/", True),
             ("ab", "/(a|b){2}/", True), ("sshd", "/\\bssh\\b/", False), ("a", "/a(/", False), ("a", "!/a(/", True),
             ("d5", "/\\d/", True), ("", "//", True)]
    assert [matcher.matches(text, expression) for text, expression, _ in cases] == [hit for _, _, hit in cases]
    assert matcher.notices == ["/a(/ is no regular expression: it never matches"]


def test_a_hostile_regular_expression_takes_no_time() -> None:
    assert not nhc_match.Matcher().matches("a" * 40000, "/^(a+)+$b/")
