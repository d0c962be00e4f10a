"""Files, folders and archives taken in by node; bytes to documents."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import pytest

from hpcadmin import intake
from hpcadmin.documents import clean_lines, decode, documents
from hpcadmin.errors import UsageError
from hpcadmin.intake import take
from hpcadmin.reading import read_one

CAPTURE = "\nHPCADMIN-CAPTURE 1 0123456789abcdef0123456789abcdef\n"


def taken(*paths: Path | str, node: str = "") -> dict[str, list[str]]:
    return {one.node: [*(document.name for document in one.documents), *one.captures]
            for one in take([str(path) for path in paths], node)}


def write(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        path = folder / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def test_files_of_a_node_belong_together(tmp_path: Path) -> None:
    write(tmp_path, n1_dot_lscpu_dot_txt="a", n1_dot_txt=CAPTURE, n10_dot_txt="b", n2__topo="c", n2__deep__smi="d")
    assert taken(tmp_path) == {
        "n1": [str(tmp_path / "n1.lscpu.txt"), str(tmp_path / "n1.txt")], "n10": [str(tmp_path / "n10.txt")],
        "n2": [str(tmp_path / "n2/deep/smi"), str(tmp_path / "n2/topo")]}


def test_dots_in_host_names_stay(tmp_path: Path) -> None:
    write(tmp_path, **{"n1_dot_example_dot_org_dot_txt": "a"})
    assert list(taken(tmp_path)) == ["n1.example.org"]


def test_all_for_one_node(tmp_path: Path) -> None:
    write(tmp_path, a="x", b="y")
    assert list(taken(tmp_path / "a", tmp_path / "b", node="gpu7")) == ["gpu7"]
    assert len(taken(tmp_path / "a", tmp_path / "b", node="gpu7")["gpu7"]) == 2


def test_links_in_folders_are_not_followed_and_pipes_not_opened(tmp_path: Path) -> None:
    write(tmp_path, secret="root:x", dir__n1="a")
    (tmp_path / "dir/n2").symlink_to(tmp_path / "secret")
    os.mkfifo(tmp_path / "dir/n3")
    found = {one.node: one for one in take([str(tmp_path / "dir")])}
    assert [name for name, one in found.items() if one.documents] == ["n1"]
    assert all("not a regular file" in found[name].errors[0] for name in ("n2", "n3"))


def test_a_link_that_the_user_named_is_followed(tmp_path: Path) -> None:
    write(tmp_path, real__n1="a")
    (tmp_path / "latest").symlink_to(tmp_path / "real")
    assert list(taken(tmp_path / "latest")) == ["n1"]


def test_a_folder_of_tools_is_of_the_node_that_it_is_named_after(tmp_path: Path) -> None:
    write(tmp_path, n7__lscpu_dot_txt="a", n7__topo_dot_txt="b", caps__topo_dot_txt="c", caps__n1_dot_txt="d")
    assert taken(tmp_path / "n7") == {"n7": [str(tmp_path / "n7/lscpu.txt"), str(tmp_path / "n7/topo.txt")]}
    assert list(taken(tmp_path / "caps")) == ["n1", "topo"]


def test_a_name_that_is_no_nodes_is_of_the_node_that_is_named(tmp_path: Path) -> None:
    write(tmp_path, n1_dot_txt="a")
    (tmp_path / "my file.txt").write_text("b")
    assert list(taken(tmp_path, node="n2")) == ["n2"]
    assert len(taken(tmp_path, node="n2")["n2"]) == 2


REFUSED = ["absent", "empty"]


@pytest.mark.parametrize("name", REFUSED)
def test_what_holds_nothing_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError) as caught:
        taken(tmp_path / name)
    assert name in str(caught.value)


def test_two_captures_of_one_node(tmp_path: Path) -> None:
    write(tmp_path, a__n1=CAPTURE, b__n1=CAPTURE)
    (one,) = take([str(tmp_path / "a"), str(tmp_path / "b")])
    assert list(one.captures) == [str(tmp_path / "a/n1"), str(tmp_path / "b/n1")]
    failed = read_one(one).failed
    assert failed and failed.reason.startswith("two captures of it: ")


def test_a_file_of_one_node_has_no_lines_of_others(tmp_path: Path) -> None:
    """What a node printed cannot speak for another one."""
    for name, prefix in (("n1.txt", "n2"), ("n3.txt", "n3"), ("all.txt", "n4"), ("n5.txt", "n[5-6]")):
        (tmp_path / name).write_text("\n".join(f"{prefix}: {line}" for line in TOPO))
    found = {one.node: one for one in take([str(tmp_path)])}
    assert sorted(found) == ["n1", "n3", "n4", "n5"]
    assert "n1.txt: has lines of n2, and is named after n1: not read" in found["n1"].errors[0]
    assert not found["n1"].documents and not found["n5"].documents
    assert found["n3"].documents and found["n4"].documents


def archive(path: Path, files: dict[str, bytes], mode: str = "w:gz") -> Path:
    with tarfile.open(path, mode) as into:                                  # type: ignore[call-overload]
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            into.addfile(member, io.BytesIO(data))
    return path


@pytest.mark.parametrize(("suffix", "mode"), [("tar", "w"), ("tar.gz", "w:gz"), ("tar.bz2", "w:bz2"), ("tgz", "w:gz"),
                                              ("tar.xz", "w:xz")])
def test_archives(tmp_path: Path, suffix: str, mode: str) -> None:
    files = {"caps/n1.txt": b"a", "caps/n2/topo.txt": b"b", "../../etc/n3": b"c"}
    path = archive(tmp_path / f"x.{suffix}", files, mode)
    assert list(taken(path)) == ["n1", "n2"]


@pytest.mark.parametrize(("file", "node"), [
    ("n1/topo.txt", "n1"), ("caps/n1.txt", "n1"), ("caps/n1/deep.txt", "n1"), ("topo.txt", "n9"), ("n1.txt", "n1"),
])
def test_whose_a_file_in_an_archive_is(tmp_path: Path, file: str, node: str) -> None:
    assert list(taken(archive(tmp_path / "n9.tar.gz", {file: b"a"}))) == [node]


def test_a_dump_of_sys_is_one_document(tmp_path: Path) -> None:
    path = archive(tmp_path / "n5.tar.gz", {"n5/sys/devices/system/cpu/online": b"0-3\n", "n5/proc/cpuinfo": b"x"})
    one = next(take([str(path)]))
    assert one.node == "n5" and one.documents[0].form == "tree"
    assert one.documents[0].tree["sys/devices/system/cpu/online"] == "0-3\n"


def test_a_folder_with_sys_is_a_dump_too(tmp_path: Path) -> None:
    write(tmp_path, n6__sys__devices__system__cpu__online="0-1")
    (tmp_path / "n6/sys/link").symlink_to("devices/system")
    one = next(take([str(tmp_path / "n6")]))
    assert one.documents[0].tree["sys/devices/system/cpu/online"] == "0-1"
    assert one.documents[0].tree["sys/link@"] == "sys/devices/system"


def test_broken_and_oversized_archives_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "n7.tar.gz"
    broken.write_bytes(b"\x1f\x8b" + b"junk" * 50)
    assert "cannot be unpacked" in next(take([str(broken)])).errors[0]
    monkeypatch.setattr(intake, "MAX_ARCHIVE", 1000)
    large = archive(tmp_path / "n8.tar.gz", {"n8.txt": bytes(5000)})
    assert "more than 1000 bytes" in next(take([str(large)])).errors[0]


def test_encodings() -> None:
    for data in ("Größe\n".encode(), "Größe\n".encode("utf-16"), b"\xef\xbb\xbf" + "Größe\n".encode(),
                 "Größe\n".encode("utf-16-le")):
        assert decode(data).startswith("Größe")
    assert "\ufffd" in decode(b"caf\xe9")


def test_lines_are_as_a_terminal_shows_them() -> None:
    text = "\x1b[4mGPU0\x1b[0m\r\nplain\x00\rnext\x1b]0;title\x07!\n"
    assert clean_lines(text) == ("GPU0", "plain", "next!")


def test_xml_inside_a_text_keeps_its_line_numbers() -> None:
    found = documents("x", b"$ nvidia-smi -q -x\n\n<?xml version='1.0'?>\n<nvidia_smi_log>\n")
    assert [document.form for document in found] == ["text", "xml"]
    assert found[1].lines[2].startswith("<?xml") and found[1].lines[0] == ""


@pytest.mark.parametrize(("text", "form"), [('{"a": 1}', "json"), ("[1, 2]", "json"), ("[root@n1 ~]# lscpu", "text"),
                                            ("<topology>", "xml"), ('{"cut": ', "json"), ("x", "text"), ("", "text")])
def test_forms(text: str, form: str) -> None:
    assert documents("x", text.encode())[-1].form == form


TOPO = ["\tGPU0\tGPU1\tCPU Affinity", "GPU0\t X \tNV4\t0-7", "GPU1\tNV4\t X \t0-7"]


def test_outputs_of_many_nodes_in_one_text(tmp_path: Path) -> None:
    lines = [f"n{node}: {line}" for line in TOPO for node in (1, 2)]
    (tmp_path / "all.txt").write_text("\n".join(lines))
    found = {one.node: one.documents[0] for one in take([str(tmp_path / "all.txt")])}
    assert list(found) == ["n1", "n2"]
    # Line numbers are those of the file.
    assert found["n2"].lines[3] == TOPO[1] and found["n2"].lines[2] == ""


def test_folded_blocks_of_dshbak_and_clush(tmp_path: Path) -> None:
    rule = "-" * 15
    text = "\n".join([rule, "n[1-2,4] (3)", rule, *TOPO, rule, "n3", rule, "command not found"])
    (tmp_path / "all.txt").write_text(text)
    found = {one.node: one.documents[0].lines for one in take([str(tmp_path / "all.txt")])}
    assert list(found) == ["n1", "n2", "n4", "n3"]
    assert found["n1"] == found["n4"] and found["n3"][-1] == "command not found"


def test_folded_prefixes_of_clush(tmp_path: Path) -> None:
    """clush -L: lines of other nodes may stand between."""
    other = [line.replace("NV4", "SYS") for line in TOPO]
    lines = [text for ours, theirs in zip(TOPO, other, strict=True) for text in (f"n[1-2,4]: {ours}", f"n3: {theirs}")]
    (tmp_path / "all.txt").write_text("\n".join(lines))
    found = {one.node: [line for line in one.documents[0].lines if line] for one in take([str(tmp_path / "all.txt")])}
    assert found == {"n1": TOPO, "n2": TOPO, "n4": TOPO, "n3": other}


@pytest.mark.parametrize("said", [
    "n3: bash: nvidia-smi: command not found", "pdsh@head: n3: ssh exited with exit code 127",
    "clush: n3: exited with exit code 127",
    "n3: bash: line 1: nvidia-smi: command not found\nclush: n3: exited with 127"])
def test_a_node_that_failed_is_named_and_spoils_no_other(tmp_path: Path, said: str) -> None:
    lines = ["[root@head ~]# pdsh -w n[1-3] nvidia-smi topo -m", *said.split("\n"),
             *(f"n{node}: {line}" for line in TOPO for node in (1, 2))]
    (tmp_path / "all.txt").write_text("\n".join([*lines, "[root@head ~]# "]))
    found = {one.node: [line for line in one.documents[0].lines if line] for one in take([str(tmp_path / "all.txt")])}
    assert sorted(found) == ["n1", "n2", "n3"]
    assert found["n1"] == found["n2"] == TOPO
    assert "127" in found["n3"][0] or "command not found" in found["n3"][0]


def test_a_text_of_very_many_nodes_is_taken_apart_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "all.txt").write_text("\n".join(f"n{node}: {line}" for line in TOPO for node in range(9)))
    monkeypatch.setattr(intake, "MAX_PLACED", 100)
    found = {one.node: one.documents[0] for one in take([str(tmp_path / "all.txt")])}
    assert found["n8"].lines == tuple(TOPO)
    assert found["n8"].name.endswith("all.txt (lines of n8)")


@pytest.mark.deep
def test_lists_of_nodes_are_bounded(tmp_path: Path) -> None:
    (tmp_path / "n9.txt").write_text("n[1-90000]: x\n" * 400)
    assert list(taken(tmp_path / "n9.txt")) == ["n9"]


def test_several_such_texts_are_joined_by_node(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text("\n".join(f"n{node}: {line}" for line in TOPO for node in (1, 2)))
    found = {one.node: len(one.documents) for one in take([str(tmp_path / "a"), str(tmp_path / "b")])}
    assert found == {"n1": 2, "n2": 2}


@pytest.mark.parametrize("text", [
    "Architecture: x86_64\nCPU(s): 4\nSocket(s): 1\n", "slurmd-n1: debug: a\nslurmd-n1: debug: b\nslurmd-n1: x: c\n",
    "error: a\nerror: b\nerror: c\n", "-----\nn1\n", "", "GPU0: a\nGPU0: b\nGPU0: c\nGPU1: a\n",
    "NVRM: a\nNVRM: b\nNVRM: c\n", "0: a\n0: b\n0: c\n",
    "c1:00.0 a\nc1:00.1 b\nc1:00.2 c\nc2:00.0 d\n", "GPU[0]: a\nGPU[0]: b\nGPU[0]: c\n",
    "n1: a\nn1: b\nplain\nplain\nplain\nplain\n"])
def test_texts_of_one_node_stay_whole(tmp_path: Path, text: str) -> None:
    (tmp_path / "n9.txt").write_text(text)
    assert list(taken(tmp_path / "n9.txt")) == ["n9"]


PASTE = "        GPU0    GPU1\nGPU0     X      NV12\nGPU1    NV12     X\n"


@pytest.mark.parametrize("wrapped", [
    "\n".join(f"> {line}" for line in PASTE.splitlines()), "\n".join(f">> {line}" for line in PASTE.splitlines()),
    "\n".join(f">{line}" for line in PASTE.splitlines()), PASTE.replace("  ", " \u00a0"),
    PASTE.replace("GPU", "GPU\u200b"),
    f"<pre>{PASTE}</pre>", f"<pre><code>{PASTE.replace(' X ', '&nbsp;X ')}</code></pre>",
])
def test_what_mail_and_web_pages_put_around_a_text_goes(wrapped: str) -> None:
    lines = clean_lines(wrapped)
    assert [line.split() for line in lines if line.strip()] == [line.split() for line in PASTE.splitlines()]


def test_fences_are_blank_lines() -> None:
    assert clean_lines("see:\n```console\na\n```\n~~~\n~~~~~~~~~~~~\n") == ("see:", "", "a", "", "", "~" * 12)


@pytest.mark.parametrize("text", [
    '<?xml version="1.0"?>\n<topology\n>\n<object type="Machine"\n/>\n</topology>\n', "<defunct> a &lt; b\n<none>\n",
    "a < b && c > d\n",
])
def test_what_is_no_wrapping_stays(text: str) -> None:
    assert clean_lines(text) == tuple(text.splitlines())


def test_quoted_markup_is_what_it_stands_for() -> None:
    (document,) = documents("n1", b"&lt;system version=&quot;1&quot;&gt;\n&lt;/system&gt;\n")
    assert (document.form, document.lines[0]) == ("xml", '<system version="1">')


def test_half_of_a_tag_quoted_is_the_tag() -> None:
    (document,) = documents("n1", b"<system version=\"1\">\n&nbsp; <cpu&gt;x</cpu&gt;\n</system>\n")
    assert document.lines[1] == "  <cpu>x</cpu>"


def test_comments_before_an_xml_are_no_text_of_their_own() -> None:
    assert [d.form for d in documents("n1", b"<!-- a\nb --> <!-- c -->\n<system>\n</system>\n")] == ["xml"]
    aside, xml = documents("n1", b"my nodes:\n<system>\n</system>\n")
    assert (aside.form, aside.aside, xml.form) == ("text", True, "xml")


def test_a_file_that_no_node_is_called_spoils_no_other(tmp_path: Path) -> None:
    write(tmp_path, n1="a")
    (tmp_path / "my file (2).txt").write_text("b")
    found = {one.node: one for one in take([str(tmp_path)])}
    assert found["n1"].documents and not found["n1"].errors
    assert "is not named after a node" in found["my_file__2_.txt"].errors[0]
