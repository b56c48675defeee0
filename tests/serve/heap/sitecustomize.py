"""In a server under test: what its allocator has given out, every second, into `EDGEKIT_HEAP`/PROCESS.

Python imports this by itself from a folder of PYTHONPATH. Resident memory also holds what is free again.
"""

import ctypes
import gc
import os
import threading
import time

FIELDS = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"


class Heap(ctypes.Structure):
    """Of glibc's <malloc.h>."""

    _fields_ = [(name, ctypes.c_size_t) for name in FIELDS.split()]


def note(folder: str) -> None:
    """A line a second: monotonic seconds, kB in use."""
    mallinfo = ctypes.CDLL(None).mallinfo2
    mallinfo.restype = Heap
    with open(os.path.join(folder, str(os.getpid())), "w", buffering=1) as lines:
        while True:
            gc.collect()
            found = mallinfo()
            lines.write(f"{time.monotonic()} {(found.uordblks + found.hblkhd) // 1024}\n")
            time.sleep(1)


if os.environ.get("EDGEKIT_HEAP"):
    threading.Thread(target=note, args=(os.environ["EDGEKIT_HEAP"],), daemon=True).start()
