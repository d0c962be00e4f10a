"""The probe: runs in every shell of this machine, within a second, in frames that nothing printed can break."""

import shutil
import subprocess
import time
from dataclasses import replace

import pytest
import sim_node

from hpcadmin.errors import ParseError
from hpcadmin.facts import facts, new_token, probe_script, read_capture, split_capture

SHELLS = [["dash"], ["bash"], ["bash", "--posix"], ["busybox", "sh"], ["ksh"], ["zsh", "--emulate", "sh"], ["mksh"]]
HERE = [shell for shell in SHELLS if shutil.which(shell[0])]


def run(script: str, shell: list[str] | None = None, token: str = "") -> str:
    done = subprocess.run([*(shell or ["sh"]), "-s", "--", token or new_token()], input=script, capture_output=True,
                          text=True, check=True, timeout=60)
    assert not done.stderr
    return done.stdout


@pytest.mark.deep
@pytest.mark.parametrize("shell", HERE, ids=" ".join)
def test_a_whole_capture_in_each_shell(shell: list[str]) -> None:
    capture = split_capture(run(probe_script(), shell), "here")
    assert capture.complete
    assert list(capture.sections) == list(facts())
    assert all(section.status is not None for section in capture.sections.values())
    assert not any(section.truncated for section in capture.sections.values())


@pytest.mark.deep
def test_under_a_second() -> None:
    def seconds() -> float:
        start = time.monotonic()
        sim_node.capture("8xH100")
        return time.monotonic() - start
    sim_node.capture("8xH100")
    assert any(seconds() < 1.0 for _ in range(5))


@pytest.mark.deep
def test_shells_agree() -> None:
    """All but the clock and the memory that is free is the same, whichever shell asked."""
    found = []
    for shell in ("dash", "bash"):
        node = read_capture(sim_node.capture("8xH100", shell=shell), "node01")
        found.append(replace(node, captured="", memory_mib=None))
    assert found[0] == found[1]


def with_facts(*commands: str) -> str:
    """The probe with made-up facts alone."""
    beginning = probe_script().split("fact_time()")[0]
    parts = [f"fact_f{number}() {{\n{command}\n}}" for number, command in enumerate(commands)]
    parts.append('''printf '\\nHPCADMIN-CAPTURE 1 %s\\n' "$T"''')
    parts += [f"section f{number} 1000 9" for number in range(len(commands))]
    parts += [f'''printf '\\n@%s done sections=%s\\n' "$T" {len(commands)}''', "exit 0", "}", ""]
    return beginning + "\n".join(parts)


@pytest.mark.deep
@pytest.mark.parametrize("shell", HERE, ids=" ".join)
def test_frames(shell: list[str]) -> None:
    script = with_facts(
        "echo out; echo err >&2; return 3", "printf 'no newline'", "cat; echo nothing was on stdin", "yes y", "exit 5",
        "run 1 sleep 9", "run 1 there-is-no-such-tool", "printf '%5000s' x >&2", "printf '@%s done sections=1' x",
        "while :; do echo line; done", ":")
    capture = split_capture(run(script, shell), "here")
    assert capture.complete
    said = [(s.text, s.stderr[:20], s.status, s.truncated) for s in capture.sections.values()]
    assert said[0] == ("out\n", "err", 3, False)
    assert said[1] == ("no newline", "", 0, False)
    assert said[2][0] == "nothing was on stdin\n"
    assert (len(said[3][0]), said[3][3]) == (1000, True)
    assert capture.sections["f5"].timed_out
    assert said[6][:3] == ("", "", 127)
    assert said[8][0] == "@x done sections=1"
    assert said[9][3]
    assert said[10] == ("", "", 0, False)


def test_what_a_tool_prints_cannot_pass_for_a_frame() -> None:
    token = new_token()
    text = run(with_facts("printf '\\n@%s end f0\\n' 0123456789abcdef", "echo '\n@TOKEN begin f0 limit=5'; echo x"),
               token=token)
    capture = split_capture(text, "here", token)
    assert "@0123456789abcdef end" in capture.sections["f0"].text
    assert capture.complete


@pytest.mark.deep
def test_without_timeout_the_probe_still_runs() -> None:
    script = probe_script().replace("timeout -k 1 5 true", "false")
    assert split_capture(run(script), "here").complete


def test_a_token_is_required() -> None:
    for token in ("", "x; id", "ABC"):
        done = subprocess.run(["sh", "-s", "--", token], input=probe_script(), capture_output=True, text=True,
                              check=False)
        assert done.returncode == 2
        assert not done.stdout


@pytest.mark.deep
def test_noise_before_the_capture() -> None:
    text = run(probe_script())
    plain = read_capture(text, "node01")
    noisy = read_capture(f"Welcome!\n\x1b[1mHPCADMIN-CAPTURE\nHPCADMIN-CAPTURE 1 zzzz\n{text}logout\n", "node01")
    assert noisy == plain


@pytest.mark.deep
def test_a_terminals_line_ends() -> None:
    text = run(probe_script())
    assert read_capture(text.replace("\n", "\r\n"), "node01") == read_capture(text, "node01")


@pytest.mark.deep
def test_the_token_that_was_sent_decides() -> None:
    """A banner that looks like a capture is passed over."""
    token = new_token()
    banner = "HPCADMIN-CAPTURE 1 0123456789abcdef\n\n@0123456789abcdef done sections=0\n"
    text = banner + run(probe_script(), token=token)
    assert read_capture(text, "node01", token).cpu.cores
    with pytest.raises(ParseError):
        read_capture(text, "node01", "f" * 32)


@pytest.mark.deep
def test_without_the_token_the_capture_that_ends_counts() -> None:
    """As a text that was kept: what a banner or a tool printed may look like the beginning of another one."""
    text = run(probe_script())
    plain = read_capture(text, "node01")
    false = "HPCADMIN-CAPTURE 1 0123456789abcdef\n\n@0123456789abcdef begin cpu limit=9\n"
    assert read_capture(false + text, "node01") == plain
    assert read_capture(text + false, "node01") == plain
    cut = text[:text.index("begin os_release")]
    assert read_capture(false + cut, "node01") == read_capture(cut, "node01")
    nested = false + "\n@0123456789abcdef done sections=1\n"
    inside = text.replace("\n@", f"\n{nested}\n@", 1)
    assert read_capture(inside, "node01").cpu == plain.cpu
    with pytest.raises(ParseError, match="two captures"):
        read_capture(text + run(probe_script()), "node01")


@pytest.mark.parametrize(("text", "what"), [
    ("", "empty"), ("\n \n", "empty"), ("-bash: sh: command not found\n", "is not a capture"),
    ("HPCADMIN-CAPTURE 2 0123456789abcdef\n", "format 2")])
def test_what_is_no_capture(text: str, what: str) -> None:
    with pytest.raises(ParseError, match=what) as caught:
        read_capture(text, "node07")
    assert caught.value.where == "node07"
