"""How well the kernel's clock is disciplined, by the kernel's own word (adjtimex), whichever program does it."""

from hpcadmin.health.node.api import NoAnswer

STA_UNSYNC, STA_NANO, TIME_ERROR = 0x40, 0x2000, 5


class Clock:
    """synchronised; what is left to be corrected; the bound of the error."""

    __slots__ = ("error_ms", "offset_ms", "synchronised")

    def __init__(self, synchronised: bool, offset_ms: float, error_ms: float) -> None:
        self.synchronised, self.offset_ms, self.error_ms = synchronised, offset_ms, error_ms


def read(root: str = "") -> Clock:
    if root:
        raise NoAnswer("a copy of a node has no clock")
    import ctypes
    import struct
    buffer = ctypes.create_string_buffer(512)   # struct timex, with modes 0: only reads
    state = ctypes.CDLL(None, use_errno=True).adjtimex(buffer)
    if state < 0:
        raise NoAnswer("adjtimex: error %d" % ctypes.get_errno())
    _, offset, _, error, _, status = struct.unpack_from("@Illlli", buffer)
    return clock(state, offset, error, status)


def clock(state: int, offset: int, error_us: int, status: int) -> Clock:
    scale = 1e6 if status & STA_NANO else 1e3
    return Clock(state != TIME_ERROR and not status & STA_UNSYNC, offset / scale, error_us / 1e3)
