"""Run a command of the runner while no other such command runs on this device, and while the requester is connected.

The requester writes a byte now and then. If standard input ends, or if nothing arrives for some time, the command is
ended with all processes that it started. Otherwise it would continue after a broken connection, and slow down the next
command. The exit code is that of the command, 7 if another command is running here, or 6 if the requester has
disconnected. Arguments: the home, the seconds without a byte after which the command is ended, the seconds to wait for
another command to end, the runner, and its arguments.
"""

import contextlib
import fcntl
import os
import select
import signal
import subprocess
import sys
import time

POLL_S = 0.1


def main(home: str, silence_s: float, patience_s: float, words: list) -> int:
    lock = os.open(os.path.join(home, "fleet", ".attended.lock"), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    deadline = time.monotonic() + patience_s
    while not take(lock):
        if time.monotonic() > deadline:
            return end(7, "another measurement is running on this device (" + holder(lock) + "); wait until it ends")
        if not listens(POLL_S):
            return 6
    os.ftruncate(lock, 0)
    with contextlib.suppress(OSError):  # the lock is valid even if the disk is full
        os.pwrite(lock, ("process " + str(os.getpid())).encode(), 0)
    ended_fd, child_fd = os.pipe()  # the command has the other end, which closes when it ends
    command = [sys.executable, *words]
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True, pass_fds=(child_fd, lock))
    os.close(child_fd)
    while ended_fd not in (ready := select.select([0, ended_fd], [], [], silence_s)[0]):
        if not ready or not os.read(0, 4096):
            kill(child)
            return end(
                6,
                "the connection was closed, so the measurement was stopped"
                if ready
                else "nothing was received from the workstation, so the measurement was stopped",
            )
    code = child.wait()
    return code if code >= 0 else end(6, "was ended by signal " + str(-code))


def take(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def holder(lock: int) -> str:
    return os.pread(lock, 100, 0).decode("ascii", "replace") or "process unknown"


def listens(within_s: float) -> bool:
    """Wait up to this many seconds, and return whether the requester is still connected as far as is known."""
    return not select.select([0], [], [], within_s)[0] or bool(os.read(0, 4096))


def kill(child: "subprocess.Popen") -> None:
    with contextlib.suppress(OSError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def end(code: int, text: str) -> int:
    with contextlib.suppress(OSError):  # nobody may be there to read it
        sys.stderr.write("edgerun: " + text + "\n")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], float(sys.argv[2]), float(sys.argv[3]), sys.argv[4:]))
