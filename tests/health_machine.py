"""A folder that stands for a node: as much of /proc, /sys and tools as the node's checks read."""

from __future__ import annotations

import stat
from pathlib import Path

BOOT = "11111111-2222-3333-4444-555555555555"
STAT = (
    "{pid} ({name}) {state} {parent} {pid} {pid} 0 -1 {flags} 100 0 0 0 {user} {system} 0 0 20 0 1 0 {start} "
    "104857600 {pages} 18446744073709551615 1 1 0 0 0 0 0 4096 0 0 0 0 17 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n"
)


class Machine:
    """Writes files below a root; each method is one part of a node."""

    def __init__(self, root: Path, host: str = "gpu001") -> None:
        self.root = root
        self.file("/proc/sys/kernel/random/boot_id", BOOT + "\n")
        self.file("/proc/sys/kernel/hostname", host + "\n")
        self.file("/proc/uptime", "864000.00 1000000.00\n")
        self.file("/proc/loadavg", "1.50 2.00 2.50 3/1234 99999\n")
        self.meminfo(512 << 20)
        self.mounts("/dev/sda1 / ext4 rw,relatime 0 0")

    def file(self, path: str, content: str | bytes = "") -> Path:
        target = self.root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content if isinstance(content, bytes) else content.encode())
        return target

    def link(self, path: str, target: str) -> None:
        place = self.root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(target)

    def meminfo(self, total_kib: int, free_kib: int | None = None, swap_kib: int = 0) -> None:
        free = total_kib // 2 if free_kib is None else free_kib
        self.file(
            "/proc/meminfo",
            f"MemTotal: {total_kib} kB\nMemFree: {free} kB\nMemAvailable: {free} kB\n"
            f"Buffers: 1024 kB\nCached: 2048 kB\nSwapTotal: {swap_kib} kB\nSwapFree: {swap_kib} kB\n",
        )

    def mounts(self, *lines: str) -> None:
        self.file("/proc/mounts", "\n".join(lines) + "\n")

    def cpus(self, sockets: int, cores: int, threads: int, offline: tuple[int, ...] = ()) -> None:
        """As Linux numbers them: core by core, socket by socket, then all second threads."""
        total = sockets * cores * threads
        folder = "/sys/devices/system/cpu"
        online = [cpu for cpu in range(total) if cpu not in offline]
        self.file(f"{folder}/present", f"0-{total - 1}\n")
        self.file(f"{folder}/online", ",".join(map(str, online)) + "\n" if offline else f"0-{total - 1}\n")
        for cpu in online:
            core = cpu % (sockets * cores)
            package = [c for c in online if c % (sockets * cores) // cores == core // cores]
            siblings = [c for c in online if c % (sockets * cores) == core]
            self.file(f"{folder}/cpu{cpu}/topology/core_siblings_list", ",".join(map(str, package)) + "\n")
            self.file(f"{folder}/cpu{cpu}/topology/thread_siblings_list", ",".join(map(str, siblings)) + "\n")

    def process(
        self,
        pid: int,
        name: str,
        line: str = "",
        *,
        parent: int = 1,
        state: str = "S",
        kernel: bool = False,
        user_s: float = 1.0,
        pages: int = 1000,
        start_s: float = 10.0,
        cgroup: str = "0::/init.scope\n",
    ) -> None:
        self.file(
            f"/proc/{pid}/stat",
            STAT.format(
                pid=pid,
                name=name[:15],
                state=state,
                parent=parent,
                flags=0x00200040 if kernel else 0x00400000,
                user=int(user_s * 100),
                system=0,
                start=int(start_s * 100),
                pages=pages,
            ),
        )
        self.file(f"/proc/{pid}/cmdline", line.replace(" ", "\0") + "\0" if line else "")
        self.file(f"/proc/{pid}/cgroup", cgroup)

    def kernel_log(self, *lines: str, first: int = 0, seconds: float = 863000.0) -> None:
        """Texts of the kernel, error level, one a second."""
        self.file(
            "/dev/kmsg", "".join(f"3,{first + n},{int((seconds + n) * 1e6)},-;{line}\n" for n, line in enumerate(lines))
        )

    def interface(
        self,
        name: str,
        state: str = "up",
        mbps: int | str = 100000,
        mtu: int = 9000,
        device: bool = True,
        **counters: int,
    ) -> None:
        folder = f"/sys/class/net/{name}"
        for what, value in (
            ("operstate", state),
            ("speed", mbps),
            ("mtu", mtu),
            ("duplex", "full"),
            ("address", "02:00:00:00:00:01"),
            ("carrier", int(state == "up")),
        ):
            self.file(f"{folder}/{what}", f"{value}\n")
        if device:
            self.file(f"{folder}/device/uevent", "")
        for what, value in {"rx_errors": 0, "tx_errors": 0, "rx_crc_errors": 0, **counters}.items():
            self.file(f"{folder}/statistics/{what}", f"{value}\n")

    def port(
        self,
        device: str,
        number: int = 1,
        *,
        state: str = "4: ACTIVE",
        physical: str = "5: LinkUp",
        rate: str = "400 Gb/sec (4X NDR)",
        layer: str = "InfiniBand",
        **counters: int,
    ) -> None:
        folder = f"/sys/class/infiniband/{device}/ports/{number}"
        for name, value in (("state", state), ("phys_state", physical), ("rate", rate), ("link_layer", layer)):
            self.file(f"{folder}/{name}", value + "\n")
        for what, value in {"symbol_error": 0, "link_downed": 0, "port_rcv_errors": 0, **counters}.items():
            self.file(f"{folder}/counters/{what}", f"{value}\n")

    def gpu_on_bus(self, address: str, vendor: str = "0x10de", kind: str = "0x030200") -> None:
        for name, value in (("class", kind), ("vendor", vendor), ("device", "0x2330"), ("current_link_width", "16")):
            self.file(f"/sys/bus/pci/devices/{address}/{name}", value + "\n")

    def tool(self, name: str, out: str = "", status: int = 0, err: str = "", script: str = "") -> None:
        """A program that says this; script: shell lines before it."""
        self.file(f"/said/{name}.out", out)
        self.file(f"/said/{name}.err", err)
        place = self.file(
            f"/usr/bin/{name}",
            f"#!/bin/sh\n{script}\ncat {self.root}/said/{name}.err >&2\n"
            f"cat {self.root}/said/{name}.out\nexit {status}\n",
        )
        place.chmod(place.stat().st_mode | stat.S_IXUSR)


def smi_xml(gpus: int = 8, **changes: dict[int, str] | str) -> str:
    """nvidia-smi -q -x of so many H100. changes: a field's marker -> value, for all or by number of the GPU."""
    blocks = []
    for number in range(gpus):
        values = {
            "width": "16x",
            "gen": "5",
            "state": "P0",
            "idle": "Not Active",
            "temp": "35 C",
            "uncorrectable": "0",
            "correctable": "0",
            "pending": "No",
            "failure": "No",
            "thermal": "Not Active",
            "fabric": "Completed",
            "status": "Success",
            "reset": "No",
            "processes": "",
            "model": "NVIDIA H100 80GB HBM3",
            "remapped": "0",
        }
        for name, change in changes.items():
            values[name] = change if isinstance(change, str) else change.get(number, values[name])
        blocks.append(GPU.format(address=f"00000000:{address(number)}:00.0", number=number, **values))
    return (
        '<?xml version="1.0" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">\n<nvidia_smi_log>\n'
        f"<driver_version>550.90.07</driver_version><attached_gpus>{gpus}</attached_gpus>\n"
        + "".join(blocks)
        + "</nvidia_smi_log>\n"
    )


def address(number: int) -> str:
    return ("19", "3B", "4C", "5D", "9B", "BB", "CB", "DB")[number % 8]


GPU = """<gpu id="{address}">
<product_name>{model}</product_name><persistence_mode>Enabled</persistence_mode>
<mig_mode><current_mig>Disabled</current_mig><pending_mig>Disabled</pending_mig></mig_mode>
<serial>00{number}</serial><uuid>GPU-0000000{number}-0000-0000-0000-000000000000</uuid><vbios_version>96.00.99</vbios_version>
<gpu_reset_status><reset_required>{reset}</reset_required></gpu_reset_status>
<pci><pci_bus_id>{address}</pci_bus_id><pci_gpu_link_info>
<pcie_gen><max_link_gen>5</max_link_gen><current_link_gen>{gen}</current_link_gen></pcie_gen>
<link_widths><max_link_width>16x</max_link_width><current_link_width>{width}</current_link_width></link_widths>
</pci_gpu_link_info></pci><performance_state>{state}</performance_state>
<clocks_event_reasons><clocks_event_reason_gpu_idle>{idle}</clocks_event_reason_gpu_idle>
<clocks_event_reason_hw_thermal_slowdown>{thermal}</clocks_event_reason_hw_thermal_slowdown></clocks_event_reasons>
<fb_memory_usage><total>81559 MiB</total><used>0 MiB</used></fb_memory_usage><compute_mode>Default</compute_mode>
<ecc_mode><current_ecc>Enabled</current_ecc><pending_ecc>Enabled</pending_ecc></ecc_mode>
<ecc_errors><volatile><sram_correctable>0</sram_correctable><sram_uncorrectable_parity>0</sram_uncorrectable_parity>
<sram_uncorrectable_secded>0</sram_uncorrectable_secded><dram_correctable>{correctable}</dram_correctable>
<dram_uncorrectable>{uncorrectable}</dram_uncorrectable></volatile>
<aggregate><dram_uncorrectable>7</dram_uncorrectable></aggregate></ecc_errors>
<retired_pages><pending_retirement>N/A</pending_retirement></retired_pages>
<remapped_rows><remapped_row_corr>0</remapped_row_corr><remapped_row_unc>{remapped}</remapped_row_unc>
<remapped_row_pending>{pending}</remapped_row_pending><remapped_row_failure>{failure}</remapped_row_failure></remapped_rows>
<temperature><gpu_temp>{temp}</gpu_temp><gpu_temp_slow_threshold>87 C</gpu_temp_slow_threshold>
<memory_temp>40 C</memory_temp></temperature>
<clocks><sm_clock>1980 MHz</sm_clock></clocks><processes>{processes}</processes>
<fabric><state>{fabric}</state><status>{status}</status></fabric>
</gpu>
"""
