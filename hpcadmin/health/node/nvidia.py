"""NVIDIA GPUs: what nvidia-smi -q -x says, read once for all checks. Names of fields moved between drivers."""

from hpcadmin.health.node.api import NoAnswer

MYPY = False
if MYPY:
    from typing import Any

    from hpcadmin.health.node.door import Door

COMMAND = ["nvidia-smi", "-q", "-x"]
TIMEOUT_S = 20
NOTHING = ("", "N/A", "[N/A]", "Not Supported", "[Not Supported]", "None",
           "Requested functionality has been deprecated")
BROKEN = ("Unknown Error", "[Unknown Error]", "ERR!", "GPU is lost", "[GPU is lost]", "[GPU requires reset]",
          "GPU requires reset")
VITAL = ("uuid", "performance_state", "pci/pci_gpu_link_info/pcie_gen/current_link_gen", "fb_memory_usage/total",
         "utilization/gpu_util", "temperature/gpu_temp", "clocks/sm_clock", "ecc_mode/current_ecc")
# Exit statuses (nvidia-smi(1)) that are a verdict; others (a wrong option, no permission) are our own affair.
VERDICTS = {8: "external power cables of a GPU are not attached", 9: "the NVIDIA driver is not loaded",
            10: "the kernel found an interrupt issue with a GPU", 12: "the NVML library is missing",
            14: "the infoROM of a GPU is corrupted", 15: "a GPU has fallen off the bus",
            18: "the driver and its library are of different versions"}
HARDWARE = (8, 14, 15)


class Gpu:
    """One GPU: its fields by path, as pci/pci_gpu_link_info/pcie_gen/current_link_gen."""

    def __init__(self, element: "Any") -> None:
        self._element = element
        self.address = address(self.text("pci/pci_bus_id") or element.get("id", ""))
        self.model = self.text("product_name")
        self.uuid = self.text("uuid")

    def raw(self, *paths: str) -> str:
        """The first of the paths that is there; drivers do not agree on names."""
        for path in paths:
            found = self._element.find(path)
            if found is not None:
                return (found.text or "").strip()
        return ""

    def text(self, *paths: str) -> str:
        """The text, "" where the driver has nothing to say."""
        value = self.raw(*paths)
        return "" if value in NOTHING else value

    def number(self, *paths: str) -> "float | None":
        """The number before the unit: 16x, 81920 MiB, 27 C. None if there is none."""
        words = self.text(*paths).split()
        try:
            return float(words[0].rstrip("x%")) if words else None
        except ValueError:
            return None

    def fields(self, path: str) -> "dict[str, str]":
        """The names and texts below a path, at any depth."""
        top = self._element.find(path)
        if top is None:
            return {}
        return {one.tag: (one.text or "").strip() for one in top.iter() if len(one) == 0 and one is not top}

    def untold(self, path: str) -> "list[str]":
        """The names below a path whose value is an error in its place."""
        top = self._element.find(path)
        return sorted({one.tag for one in top.iter() if (one.text or "").strip() in BROKEN}) if top is not None else []

    def processes(self) -> "list[dict[str, str]]":
        return [{one.tag: (one.text or "").strip() for one in info}
                for info in self._element.findall("processes/process_info")]

    def broken(self) -> "list[str]":
        """What a GPU that does not answer says instead of its values. Only these: names of programs are a user's."""
        return ["%s is %s" % (path.rpartition("/")[2], self.raw(path).strip("[]")) for path in VITAL
                if self.raw(path) in BROKEN]


class Smi:
    """What nvidia-smi said: GPUs, what it said of those it could not reach, its verdict on the driver; beside GPUs that
    answer: what it complained of by its exit status."""

    def __init__(self, gpus: "list[Gpu]", lost: "list[str]", driver: str = "", verdict: str = "",
                 *, hardware: bool = False, complaint: str = "") -> None:
        self.gpus, self.lost, self.driver, self.verdict, self.hardware = gpus, lost, driver, verdict, hardware
        self.complaint = complaint


def address(text: str) -> str:
    """00000000:1B:00.0 as the kernel writes it: 0000:1b:00.0."""
    domain, _, rest = text.strip().lower().partition(":")
    return "%s:%s" % (domain[-4:], rest) if rest.count(":") == 1 and len(domain) > 4 else text.strip().lower()


def read(door: "Door") -> Smi:
    return door.once("nvidia", lambda: parse(*_asked(door)))  # type: ignore[no-any-return]


def gpus(door: "Door") -> "list[Gpu]":
    """The GPUs, for checks that look at each; that there are some is the check gpu's affair."""
    smi = read(door)
    if smi.verdict:
        raise NoAnswer("nvidia-smi: %s" % smi.verdict)
    return smi.gpus


def _asked(door: "Door") -> "tuple[str, str, int, bool]":
    ran = door.tool(COMMAND, TIMEOUT_S)
    return ran.out, ran.err, ran.status or 0, ran.cut


def parse(out: str, err: str, status: int, cut: bool = False) -> Smi:
    """The output; what stands before the XML are complaints about GPUs that could not be reached."""
    if cut:
        raise NoAnswer("nvidia-smi said more than can be read")
    before, xml = (out[:out.find("<?xml")], out[out.find("<?xml"):]) if "<?xml" in out else (out, "")
    said = [line.strip() for line in (before + "\n" + err).splitlines() if line.strip()]
    lost = [line for line in said if "device handle" in line or "GPU is lost" in line or "fallen off the bus" in line]
    if xml:
        found, driver, announced = _tree(xml)
        if announced is not None and announced > len(found) and not lost:
            raise NoAnswer("nvidia-smi announces %d GPUs and tells of %d" % (announced, len(found)))
        verdict = VERDICTS.get(status, "") if status in HARDWARE else ""
        if not found:
            return Smi(found, lost, driver, verdict, hardware=bool(verdict))
        complaint = ""
        if status and not lost:
            complaint = verdict or "it ended with status %d: %s" % (status, said[0] if said else "it said nothing more")
        return Smi(found, lost, driver, hardware=bool(verdict), complaint=complaint)
    if any("No devices were found" in line for line in said):
        return Smi([], lost)
    if status in VERDICTS:
        return Smi([], lost, "", VERDICTS[status], hardware=status in HARDWARE)
    if lost:
        return Smi([], lost)
    raise NoAnswer("nvidia-smi ended with status %d: %s" % (status, said[0] if said else "it said nothing"))


def _tree(xml: str) -> "tuple[list[Gpu], str, int | None]":
    from xml.etree import ElementTree
    try:
        top = ElementTree.fromstring(xml)  # noqa: S314 - the node's own tool; expat here knows no external entities
    except (ElementTree.ParseError, ValueError) as exc:
        raise NoAnswer("nvidia-smi's XML cannot be read: %s" % exc) from exc
    announced = top.findtext("attached_gpus") or ""
    return ([Gpu(one) for one in top.findall("gpu")], (top.findtext("driver_version") or "").strip(),
            int(announced) if announced.strip().isdecimal() else None)
