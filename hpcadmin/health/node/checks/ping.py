"""A host answers."""

from hpcadmin.health.node.api import REQUIRED, BadConfig, Check, NoAnswer, Param, bad, good

MYPY = False
if MYPY:
    from hpcadmin.health.node.api import Finding, Params
    from hpcadmin.health.node.door import Door


def run(door: "Door", p: "Params") -> "list[Finding]":
    if not p.host or p.host[0] == "-":
        raise BadConfig("host is no name: %s" % p.host)
    argv = ["ping", "-n", "-q", "-c", str(int(p.count)), "-i", "0.2", "-W", str(max(1, int(p.wait_s))), p.host]
    ran = door.tool(argv, p.count * 0.2 + p.wait_s + 1)
    sent, got = counts(ran.out)
    if not sent:
        said = (ran.err.strip() or ran.out.strip() or "nothing").splitlines()[0]
        raise NoAnswer("ping %s said: %s" % (p.host, said))
    loss = 100.0 * (sent - got) / sent
    mean = mean_ms(ran.out)
    found = [good(host=p.host, sent=sent, loss_percent=loss, mean_ms=mean)]
    if not got or loss > p.max_loss_percent:
        found.append(bad("%s does not answer to ping" % p.host if not got
                         else "%s: %.0f %% of %d packets were lost" % (p.host, loss, sent)))
    if p.max_ms is not None and mean is not None and mean > p.max_ms:
        found.append(bad("%s answers after %g ms, more than %g" % (p.host, mean, p.max_ms)))
    return found


def counts(text: str) -> "tuple[int, int]":
    """3 packets transmitted, 3 received, 0% packet loss, time 402ms"""
    for line in text.splitlines():
        if "packets transmitted" in line:
            words = line.replace(",", " ").split()
            if len(words) > 3 and words[0].isdecimal() and words[3].isdecimal():
                return int(words[0]), int(words[3])
    return 0, 0


def mean_ms(text: str) -> "float | None":
    """rtt min/avg/max/mdev = 0.032/0.041/0.056/0.010 ms"""
    for line in text.splitlines():
        if line.startswith(("rtt ", "round-trip ")) and "=" in line:
            parts = line.partition("=")[2].split("/")
            if len(parts) >= 3 and parts[1].strip().replace(".", "", 1).isdecimal():
                return float(parts[1])
    return None


CHECK = Check("ping", "A host answers", run, timeout_s=15, params=(
    Param("host", "text", REQUIRED, "name or address"),
    Param("count", "number", 2, "packets"),
    Param("wait_s", "number", 2, "for an answer"),
    Param("max_loss_percent", "number", 50, "of the packets"),
    Param("max_ms", "number", None, "on average"),
))
