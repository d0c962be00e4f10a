"""NVIDIA driver, firmware and modes."""

from hpcadmin.health.node import masks, nvidia
from hpcadmin.health.node.api import Check, Param, bad, good

MYPY = False
if MYPY:
    from hpcadmin.health.node.api import Finding, Params
    from hpcadmin.health.node.door import Door


MODES = (("persistence", "persistence_mode"), ("compute", "compute_mode"), ("ecc", "ecc_mode/current_ecc"),
         ("mig", "mig_mode/current_mig"), ("vbios", "vbios_version"))


def run(door: "Door", p: "Params") -> "list[Finding]":
    found = nvidia.gpus(door)
    driver = nvidia.read(door).driver
    result = [good(driver=driver)]
    if p.driver is not None and not masks.matches(p.driver, driver):
        result.append(bad("NVIDIA driver %s, expected %s" % (driver or "unknown", p.driver)))
    for name, path in MODES:
        mask = getattr(p, name)
        wrong = [gpu for gpu in found if mask is not None and not masks.matches(mask, gpu.raw(path))]
        if wrong:
            result.append(bad("%s of GPU %s is %s, expected %s%s" % (
                name, wrong[0].address, wrong[0].raw(path) or "unknown", mask,
                " (%d GPUs)" % len(wrong) if len(wrong) > 1 else "")))
    pending = [gpu for gpu in found if gpu.text("ecc_mode/pending_ecc") != gpu.text("ecc_mode/current_ecc")]
    if p.ecc is not None and pending:
        result.append(bad("ECC of GPU %s changes at the next reboot" % pending[0].address))
    return result


CHECK = Check("gpu_driver", "NVIDIA driver, firmware and modes", run, timeout_s=25, params=(
    Param("driver", "mask", None, "version"),
    Param("vbios", "mask", None, "version"),
    Param("persistence", "mask", None, "Enabled or Disabled"),
    Param("compute", "mask", None, "Default or Exclusive_Process, for example"),
    Param("ecc", "mask", None, "Enabled or Disabled"),
    Param("mig", "mask", None, "Enabled or Disabled"),
))
