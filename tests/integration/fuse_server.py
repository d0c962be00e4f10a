"""A file server in a file: `python3 fuse_server.py PLACE` mounts an empty folder there, and answers until it ends.

Stopped (SIGSTOP) it is a server that does not answer, and who asks hangs; killed, one that is gone, and its mount is
stale. Of the kernel's FUSE it speaks what stat and statfs need. Standard library only: it runs on nodes.
"""

import ctypes
import errno
import os
import struct
import sys
import time
from pathlib import Path

GETATTR, STATFS, INIT = 3, 17, 26
SILENT = (2, 36, 42)        # forget, interrupt, batch forget: no answer is wanted


def attributes() -> bytes:
    """Of an empty folder of root's; to be asked for anew each time."""
    now = int(time.time())
    return struct.pack("<QII QQQ QQQ III IIIIIII", 0, 0, 0, 1, 4096, 8, now, now, now, 0, 0, 0,
                       0o40755, 2, 0, 0, 0, 4096, 0)


def answer(code: int) -> "tuple[int, bytes]":
    if code == INIT:
        return 0, struct.pack("<IIII HHIIHH I 7I", 7, 31, 65536, 0, 8, 8, 65536, 1, 0, 0, 0, *[0] * 7)
    if code == GETATTR:
        return 0, attributes()
    if code == STATFS:
        return 0, struct.pack("<QQQQQ IIII 6I", 1 << 20, 1 << 19, 1 << 19, 1 << 20, 1 << 19, 4096, 255, 4096, 0,
                              *[0] * 6)
    return -errno.ENOSYS, b""


def main(place: str) -> None:
    Path(place).mkdir(exist_ok=True)
    fd = os.open("/dev/fuse", os.O_RDWR)
    libc = ctypes.CDLL(None, use_errno=True)
    options = f"fd={fd},rootmode=40000,user_id=0,group_id=0,allow_other"
    if libc.mount(b"server:/export", place.encode(), b"fuse", 0, options.encode()) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), place)
    while True:
        try:
            asked = os.read(fd, 1 << 17)
        except OSError as exc:
            if exc.errno in (errno.EINTR, errno.ENOENT):
                continue
            return                      # unmounted
        _, code, unique = struct.unpack_from("<IIQ", asked)
        if code not in SILENT:
            status, body = answer(code)
            os.write(fd, struct.pack("<IiQ", 16 + len(body), status, unique) + body)


if __name__ == "__main__":
    main(sys.argv[1])
