"""Slurm's files and logs in the shapes in which people and programs paste them: what conf check says, and where."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from hpcadmin.cli._conf_check import Asked, checked
from hpcadmin.cli._conf_check_text import Checked, shown
from hpcadmin.conf.check.finding import Severity
from hpcadmin.documents import documents_in
from hpcadmin.facts._slurm_messages import ALL
from hpcadmin.facts._slurm_paste import plain, sides, spread
from hpcadmin.facts.slurm_files import read
from hpcadmin.site import Site

# Lines 1 and 3 are wrong.
LINES = ("NodeName=n[1-2] CPUs=30 Sockets=2 CoresPerSocket=8 ThreadsPerCore=2 RealMemory=1000 Gres=gpu:a100:2",
         "PartitionName=p Nodes=n[1-2] Default=YES",
         "Name=gpu Type=a100 File=/dev/nvidia0 Links=0,0",
         "Name=gpu Type=a100 File=/dev/nvidia1 Links=0,-1")


def judged(text: str, where: Path) -> Checked:
    (where / "paste.txt").write_text(text, newline="")
    return checked([str(where / "paste.txt")], Site(), Asked())


def faults(done: Checked) -> dict[int, str]:
    """What is above NOTE, by line."""
    found: dict[int, str] = {}
    for finding in done.result.findings:
        for place in (finding.place, *finding.more):
            if finding.severity is not Severity.NOTE and place is not None:
                found[place.line] = f"{found.get(place.line, '')}{finding.what}\n"
    return found


def lines(form: str, *, before: tuple[str, ...] = (), after: tuple[str, ...] = ()) -> str:
    return "\n".join([*before, *(form.format(line=line, n=n) for n, line in enumerate(LINES, 11)), *after]) + "\n"


SHAPES: dict[str, tuple[str, int]] = {            # the text, and how many lines stand before
    "as it is": (lines("{line}"), 0),
    "carriage returns": (lines("{line}").replace("\n", "\r\n"), 0),
    "tabs": (lines("{line}").replace(" ", "\t"), 0),
    "a fence": (lines("{line}", before=("```conf",), after=("```",)), 1),
    "a quotation of a quotation": (lines(">> {line}", before=("X wrote:",)), 1),
    "numbers and colons": (lines("{n}: {line}"), 0),
    "cat -n": (lines("    {n}\t{line}"), 0),
    "grep -n of files": (lines("/etc/slurm/slurm.conf:{n}:{line}"), 0),
    "the prefix of a container": (lines("slurmctld-1  | {line}"), 0),
    "colours": (lines("\x1b[32m{line}\x1b[0m"), 0),
    "colours without ESC": (lines("[0;32m{line}[0m"), 0),
    "a block of YAML": (lines("    {line}", before=("data:", "  slurm.conf: |")), 2),
    "a list of YAML with quotes": (lines('  - "{line}"', before=("conf:",)), 1),
    "a here document": (lines("{line}", before=("cat > slurm.conf <<'EOF'",), after=("EOF",)), 1),
    "echo": (lines('echo "{line}" >> /etc/slurm/slurm.conf'), 0),
    "tee": (lines("echo '{line}' | sudo tee -a /etc/slurm/slurm.conf"), 0),
    "a Dockerfile": (lines("RUN echo '{line}' >> /etc/slurm/slurm.conf && \\"), 0),
    "HTML": (lines("{line}<br>", before=("<pre>",), after=("</pre>",)), 1),
    "blanks around the sign": (lines("{line}").replace("CPUs=", "CPUs = ").replace("Links=", "Links= "), 0),
    "bold": (lines("**{line}**"), 0),
    "code": (lines("`{line}`"), 0),
    "no-break spaces": (lines("{line}").replace(" ", "\u00a0"), 0),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_shapes(shape: str, tmp_path: Path) -> None:
    text, before = SHAPES[shape]
    found = faults(judged(text, tmp_path))
    assert "CPUs=30" in found[1 + before] and "Links=0,0" in found[3 + before], found
    assert set(found) == {1 + before, 3 + before}


def test_files_in_a_string_of_json(tmp_path: Path) -> None:
    """The line is that of the string, also where it holds several files."""
    one = json.dumps({"data": {"slurm.conf": "\n".join(LINES[:2]) + "\n", "gres.conf": "\n".join(LINES[2:])}})
    found = faults(judged(one + "\n", tmp_path))
    assert list(found) == [1] and "CPUs=30" in found[1] and "Links=0,0" in found[1]
    found = faults(judged(json.dumps(json.loads(one), indent=1), tmp_path))
    assert "CPUs=30" in found[3] and "Links=0,0" in found[4]


def test_lines_that_a_mail_program_has_broken(tmp_path: Path) -> None:
    found = faults(judged("NodeName=n[1-2] CPUs=30 Sockets=2 CoresPerSocket=8\nThreadsPerCore=2 RealMemory=1000\n"
                          "PartitionName=p\nNodes=n[1-2] Default=YES\n", tmp_path))
    assert list(found) == [1] and "CPUs=30" in found[1]
    found = faults(judged("> our node says gres/gpu count reported lower than\n> configured (7 < 8), why?\n", tmp_path))
    assert list(found) == [1] and "7 of 8" in found[1]


PATCH = """--- a/slurm.conf
+++ b/slurm.conf
@@ -1,2 +1,2 @@
-NodeName=n1 CPUs=30 Sockets=2 CoresPerSocket=8
+NodeName=n1 CPUs={cpus} Sockets=2 CoresPerSocket=8
 PartitionName=p Nodes=n1
"""


def test_both_sides_of_a_patch(tmp_path: Path) -> None:
    """Each is a configuration: nothing is defined twice, and what was wrong before is said at its line."""
    assert list(faults(judged(PATCH.format(cpus=16), tmp_path))) == [4]
    assert list(faults(judged(PATCH.format(cpus=20), tmp_path))) == [4, 5]


@pytest.mark.parametrize("between", ["Then I changed it to", "### fixed", "After:", "$ cat /etc/slurm/slurm.conf"])
def test_two_configurations_in_one_text(between: str, tmp_path: Path) -> None:
    rest = "Sockets=2 CoresPerSocket=8\n"
    found = faults(judged(f"NodeName=n1 CPUs=30 {rest}{between}\nNodeName=n1 CPUs=16 {rest}", tmp_path))
    assert list(found) == [1] and "uplicate" not in found[1]


@pytest.mark.parametrize("text", [
    "Name=gpu File=/dev/nvidia0\n\nnew:\n\nName=gpu Type=a File=/dev/nvidia0\n",
    "on n1:\nName=gpu File=/dev/nvidia[0-3]\non n2:\nName=gpu File=/dev/nvidia[0-3]\n",
    "SwitchName=s1 Nodes=n[1-4]\n\nafter\n\nSwitchName=s1 Nodes=n[1-2]\nSwitchName=s2 Nodes=n[3-4]\n"])
def test_two_files_of_one_kind_in_one_text(text: str, tmp_path: Path) -> None:
    assert not faults(judged(text, tmp_path))


@pytest.mark.parametrize("text", [
    "NodeName={{ item.name }} CPUs={{ cpus }} Sockets={{ s }} CoresPerSocket=8 RealMemory={{ mem | int }}",
    "{% for h in hosts %}\nNodeName={{ h }} CPUs=32 Sockets=2 CoresPerSocket=8 Gres=gpu:{{ n }}\n{% endfor %}",
    "NodeName=${each.key} CPUs=${var.cpus} RealMemory=${floor(var.mem * 0.95)} State=CLOUD",
    "NodeName=<%= @name %> CPUs=<%= @cpus %> State=UNKNOWN", "NodeName=<host> CPUs=<n> RealMemory=<mem>",
    "NodeName=$(hostname -s) CPUs=$(nproc) RealMemory=$MEM\nSlurmctldHost=$HOSTNAME",
    "NodeName=n1 Sockets=XXX RealMemory=??? State=UNKNOWN"])
def test_what_a_template_leaves_open_is_no_fault(text: str, tmp_path: Path) -> None:
    assert not faults(judged(f"{text}\n", tmp_path))


@pytest.mark.parametrize("text", ["NodeName=n1 CPUs=16 Sockets=2 CoresPerSo",
                                  "Name=gpu File=/dev/nvidia0\nName=gpu Fi"])
def test_a_line_that_is_cut_off_is_not_judged(text: str, tmp_path: Path) -> None:
    done = judged(text, tmp_path)
    assert not faults(done) and any("cut off" in each for each in done.incomplete)


def test_a_slurm_conf_with_a_broken_line_is_judged_as_the_file(tmp_path: Path) -> None:
    text = ("ClusterName=c\nSlurmctldHost=h\n{}\nNodeName=n1 CPUs=4 Sockets=1 CoresPerSocket=4\n"
            "PartitionName=p Nodes=ALL\n")
    assert "cannot read" in faults(judged(text.format("SuspendExcNodes="), tmp_path))[3]
    assert "cannot read" in faults(judged(text.format("AccountingStorageTRES: gres/gpu"), tmp_path))[3]


@pytest.mark.parametrize(("named", "status"), [
    ("slurmctld --version prints slurm 24.05.3", 1), ("Version=23.11.7", 1), ("slurm 22.05.8", 0),
    ("from slurm 22.05.8 to slurm 24.05.3", 0), ("slurm 18.08.6", 0)])
def test_the_version_that_a_text_names(named: str, status: int, tmp_path: Path) -> None:
    done = judged(f"{named}\n\nSelectType=select/cons_res\n", tmp_path)
    assert done.status == status, shown(done)


WRONG = [
    ("squeue: error: Bad value \"/opt/slurm/lib\" for PluginDir", "PluginDir"),
    ("slurmctld: fatal: SallocDefaultCommand has been removed. Please consider", "SallocDefaultCommand= is gone"),
    ("slurmctld: error: This host (h/h.example) not a valid controller", "SlurmctldHost=h"),
    ("fatal: Can't find plugin for select/cons_res", "removed in 23.11"),
    ("slurmctld: error: cannot find topo plugin for topology/flat", "from 25.05 on"),
    ("slurmd: error: cannot connect to dbus system daemon: Failed", "IgnoreSystemd=yes"),
    ("slurmctld: fatal: Invalid node names in partition batch", "partition batch"),
    ("slurmctld: fatal: NodeAddr count must equal that of NodeName records", "NodeAddr="),
    ("slurmctld: fatal: _x: duplicate entry for partition p", "partition p is defined twice"),
    ("slurmctld: fatal: auth/jwt: cannot stat '/etc/slurm/jwt.key': No such file", "/etc/slurm/jwt.key"),
    ("slurmd: fatal: MultipleFiles does not contain multiple files. Use File instead", "MultipleFiles="),
    ("slurmd: error: Invalid GRES data for gpu, CPUs=48-63,176-191", "48-63,176-191"),
    ("Reason=Failed to set topology 'CoreSpecCount=3'", "takes the next word"),
    ("Reason=gres/gpu type (b) reported but not configured [slurm@2026-01-01T00:00:00]", "type b"),
    ("REASON               USER      TIMESTAMP           NODELIST\n"
     "gres/gpu GRES core s slurm     2026-01-01T00:00:00 g4", "not exactly one socket"),
    ("NODELIST  NODES PARTITION  STATE CPUS S:C:T REASON\nn1  1 p  drained 36 1:36:1 Low RealMemory", "Low RealMemory"),
    ('{"log":"slurmd: error: Parsing error at unrecognized key: Foo\\n","stream":"stderr"}', "Foo is no key"),
    ("sinfo: error: Parse error in file /e/x.conf line 3: \"=======\"", "/e/x.conf, line 3"),
]


@pytest.mark.parametrize(("text", "what"), WRONG, ids=[what for _, what in WRONG])
def test_messages_of_faults(text: str, what: str, tmp_path: Path) -> None:
    found = faults(judged(f"{text}\n", tmp_path))
    assert list(found) == [text.count("\n") + 1] and what in next(iter(found.values())), found


ELSEWHERE = [
    ("slurmctld: error: Munge decode failed: Invalid credential", "munge"),
    ("[2026-01-01T00:00:00.000] error: slurm_unpack_received_msg: Protocol authentication error", "authentication"),
    ("slurmd: error: Incompatible versions of client and server code", "versions do not go together"),
    ("slurmd: error: slurm_set_addr: Unable to resolve \"head\"", "head cannot be resolved"),
    ("slurmctld: error: Configured MailProg is invalid", "no mail is sent"),
    ("slurmd: fatal: Unable to bind listen port (6818): Address already in use", "another daemon has the port"),
    ("slurmstepd: error: Detected 1 oom_kill event in StepId=1.0", "more memory than it asked for"),
    ("REASON               USER      TIMESTAMP           NODELIST\n"
     "Node unexpectedly re slurm     2026-01-01T00:00:00 n2", "n2: Node unexpectedly re: the node was booted"),
    ("NodeName=n1 Arch=x86_64 CoresPerSocket=8\n   State=DOWN\n   Reason=Not responding [slurm@2026-01-01T00:00:00]",
     "n1: Not responding"),
]


@pytest.mark.parametrize(("text", "what"), ELSEWHERE, ids=[what for _, what in ELSEWHERE])
def test_what_no_file_is_to_blame_for_is_a_note(text: str, what: str, tmp_path: Path) -> None:
    done = judged(f"{text}\n", tmp_path)
    assert not faults(done) and what in shown(done)
    assert all(each.known["wrong"] is not True for one in documents_in("x", text) for each in read(one))


@pytest.mark.parametrize("text", [
    "#SBATCH --gres=gpu:1\nsbatch --gres=gpu:a100:2 job.sh\n",
    "slurm_nodes:\n  - name: n[1-4]\n    CPUs: 16\n    Sockets: 2\n",
    "PartitionName=main\n   AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL\n   Nodes=n[1-4]\n   State=UP TotalCPUs=8\n",
    "JobId=5 JobName=x\n   JobState=PENDING Reason=Resources Dependency=(null)\n",
    "blockSizes = [small, large]\n", "raise ValueError('project has been renamed to account')\n",
    "node_conf = {\n    CPUs = 48\n    ThreadsPerCore = 2\n}\n"])
def test_what_only_looks_like_a_configuration(text: str, tmp_path: Path) -> None:
    assert not faults(judged(text, tmp_path))


def test_the_right_line_has_a_key_once(tmp_path: Path) -> None:
    done = judged("Name=gpu File=/dev/nvidia0 CPUs=0-15,32-47\n", tmp_path)
    right = {line for finding in done.result.findings for line in finding.right}
    assert "Name=gpu File=/dev/nvidia0 CPUs=0-15" in right and not any(line.count("CPUs=") > 1 for line in right)


def test_a_plugin_that_does_not_load_is_not_called_absent(tmp_path: Path) -> None:
    done = judged("slurmd: error: Couldn't load specified plugin name for select/cons_res: Dlopen of plugin file "
                  "failed\n"
                  "slurmd: fatal: Can't find plugin for select/cons_res\n", tmp_path)
    assert "removed in 23.11" not in shown(done) and "could not be loaded" in faults(done)[2]


def test_the_word_of_a_message_is_in_its_pattern() -> None:
    for message in ALL:
        bare = message.pattern.pattern.replace("\\", "")
        assert not message.word or message.word.strip(" (\"'[") in bare, message.pattern.pattern


def test_lines_stay_where_they_are() -> None:
    text = tuple(f"{n}: NodeName=n{n} CPUs={{{{ x }}}}" for n in range(9))
    assert len(plain(text)) == 9 and len(sides(text)) == 1 and spread(text) == (text, ())


@pytest.mark.deep
@pytest.mark.parametrize("line", ["NodeName=" + "a" * 200_000, "`" * 100_000, "{{" * 100_000, "$(" * 100_000,
                                  "error: " + "x " * 100_000, "- " * 100_000 + "=", "\\n" * 100_000 + "=",
                                  "[" * 200_000 + "m", "NodeName=n1 " + "CPUs=4 " * 50_000 + "Co"])
def test_long_lines_take_no_longer_than_they_are(line: str, tmp_path: Path) -> None:
    begun = time.process_time()
    judged(f"{line}\nNodeName=n1 CPUs=4\n{line}\n", tmp_path)
    assert time.process_time() - begun < 10
