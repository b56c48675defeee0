"""Runs a program on the current release and looks after that: starts, checks, confirms, takes back, follows.

On trial a release has to start the program, keep it running and give its golden answers in time. What else the program
does is its own; one that knows better calls `edgerun rollback`.
"""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NamedTuple

from edgekit.device import processes
from edgekit.device.releases import current_release, records, single_instance, transitions
from edgekit.device.releases.home import Home
from edgekit.device.releases.systemd import SystemdNotifier
from edgekit.device.releases.validation import DEFAULT, ValidationLimits, ValidationProcess
from edgekit.runner.errors import ReleaseError, ResourceError, RunnerError, TrustError

LOOK_S = 0.1
WAIT_S = 1.0
FAILURES_IN_A_ROW = 2
"""In a row: what else runs on a device can keep one proof from its end."""
LONGEST_PAUSE_S = 30.0
STOPPED, CHANGED, ENDED, FAILED, WAITING = "stopped", "changed", "ended", "failed", "waiting"


class WatchOptions(NamedTuple):
    """`every_s`: between two checks; `confirm_after_s`: how long a release on trial has to be healthy."""

    command: tuple[str, ...] = ()
    confirm_after_s: float = 60.0
    every_s: float = 300.0
    limits: ValidationLimits = DEFAULT
    interpreter: str | None = None


class Watcher:
    """`run` until SIGTERM, SIGINT, SIGHUP, or the program's own end."""

    def __init__(self, home: Home, options: WatchOptions, say: Callable[[str], object]) -> None:
        self._home, self._options, self._say = home, options, say
        self._notifier = SystemdNotifier()
        self._stopping, self._pause_s = False, 0.0
        self._waits_for = ""
        self._inherited: list[int] = []

    def run(self) -> None:
        """Comes back where it was stopped, or where the program of a confirmed release ended by itself with code 0.

        It waits where no release is current, as when the first one was taken back; where the policy refuses the current
        one; and where the device lacks what a start needs.

        Raises
        ------
        TrustError
            Others can write in the home.
        ResourceError
            Another watch is at work.
        """
        for which in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            if which != signal.SIGHUP or signal.getsignal(which) != signal.SIG_IGN:  # as under nohup
                signal.signal(which, self._stop)
        while not self._stopping:
            number = self._begin()
            if number is None:
                self._wait(WAIT_S)
                continue
            attempt = Attempt(self._home, number, self._options, self._say, self._notifier)
            try:
                how = attempt.run(lambda: self._stopping, self._inherited)
                self._waits_for = ""
            except (ResourceError, TrustError) as error:
                how = WAITING
                self._hold(f"release {number}: {error}", f"release {number}: {error.lasting}")
            finally:
                attempt.close()
            if how in (STOPPED, ENDED):
                break
            quick = how == FAILED and time.monotonic() - attempt.begun < LONGEST_PAUSE_S
            quick = quick or how == WAITING
            self._pause_s = min(LONGEST_PAUSE_S, max(0.5, 2 * self._pause_s)) if quick else 0.0
            self._wait(self._pause_s)
        self._notifier.send("STOPPING=1")

    def _begin(self) -> int | None:
        """The release to start, a try of it spent; None where there is none, or nothing can be started now."""
        if not self._inherited and self._home.exists():
            self._inherited = [single_instance.claim_watch(self._home, self._say)]
        try:
            with self._home.locked():
                return transitions.begin_attempt(self._home, transitions.boot_id())
        except (ReleaseError, ResourceError) as error:
            self._hold(str(error), error.lasting)
        except OSError as error:
            self._hold(_text(error), _text(error))
        return None

    def _hold(self, why: str, reason: str) -> None:
        """Say why nothing is started now, once for each reason; `why` may name the time as well."""
        if reason != self._waits_for:
            self._say(f"{why}; waiting")
            self._notifier.send("READY=1", f"STATUS=waiting: {why}")
        self._waits_for = reason

    def _wait(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until and not self._stopping:
            self._notifier.beat()
            time.sleep(LOOK_S)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self._stopping = True


class Attempt:
    """One start of a release, from its program's first moment to its end."""

    def __init__(
        self, home: Home, number: int, options: WatchOptions, say: Callable[[str], object], notifier: SystemdNotifier
    ) -> None:
        self.home, self.number, self.options, self.say, self.notifier = home, number, options, say, notifier
        self.begun = time.monotonic()
        self.next_check = self.begun
        self.failures = 0
        self.passed_at: float | None = None
        self.proof: ValidationProcess | None = None
        self.process: subprocess.Popen[bytes] | None = None
        self.current, running = records.current_number(home), records.read_probation(home)
        self.on_trial = running is not None and running.release == number

    def run(self, stopping: Callable[[], bool], inherited: Collection[int]) -> str:
        """How it ended. TrustError or ResourceError where it was not started, and this says nothing against it."""
        self.notifier.beat()
        try:
            self._start(inherited)
        except RunnerError as error:
            self.notifier.beat()
            if not self._is_its_fault(error):
                self._over(WAITING)
                raise
            return self._failed(str(error))
        while True:
            self.notifier.beat()
            if stopping():
                return self._over(STOPPED)
            if self.process is not None and processes.has_ended(self.process):
                code = processes.end_process(self.process)
                if code == 0 and records.read_probation(self.home) is None:
                    return ENDED
                return self._failed(f"the program {_exit_text(code)}{'' if code else ' before it was confirmed'}")
            if records.current_number(self.home) != self.current:
                self.say(f"release {self.current} is no longer current")
                return CHANGED
            reason = ""
            with self._patient():
                reason = self._check()
            if reason:
                return self._failed(reason)
            time.sleep(LOOK_S)

    def close(self) -> None:
        """End the program, gently first, and a proof that runs."""
        if self.proof is not None:
            self.proof.close()
        if self.process is not None:
            if self.process.returncode is None and not processes.has_ended(self.process):
                self.process.terminate()
                until = time.monotonic() + single_instance.STOP_S
                while not processes.has_ended(self.process, LOOK_S) and time.monotonic() < until:
                    self.notifier.beat()
            processes.end_process(self.process)

    def _start(self, inherited: Collection[int]) -> None:
        release = current_release.Release.at(self.home, self.number)
        release.read()
        self._tell("starting")
        if self.options.command:
            words = [word.replace("{bundle}", release.path) for word in self.options.command]
            self.process = single_instance.start_program(words, release.environment(), inherited)
        if not self.on_trial:
            self.notifier.send("READY=1")

    def _is_its_fault(self, error: RunnerError) -> bool:
        """Whether a release is to be blamed for an error at its start; not where no other would be started either."""
        if not isinstance(error, (ResourceError, TrustError)):
            return True
        running = records.read_probation(self.home)
        if isinstance(error, ResourceError) or not self.on_trial or running is None:
            return False
        release = current_release.Release.at(self.home, self.number)
        try:
            current_release.read_checked(release.path, release.sha256)
        except TrustError:
            return True
        try:
            current_release.Release.at(self.home, running.origin or 0).read()
        except RunnerError:
            return False
        return True

    def _check(self) -> str:
        """Begin or end a proof where it is time; what is wrong with a release on trial, else empty."""
        if self.proof is None:
            if time.monotonic() >= self.next_check:
                self.proof = ValidationProcess(self.home, self.number, self.options.limits, self.options.interpreter)
            return ""
        report = self.proof.report()
        if report is None:
            return ""
        self.proof, first = None, self.passed_at is None
        if report["problem"]:
            return self._check_failed(report)
        self.failures, self.passed_at = 0, time.monotonic()
        if first:
            self.notifier.send("READY=1")
            self._tell("answers as recorded")
        if not self.on_trial:
            self.next_check = time.monotonic() + self.options.every_s
        elif time.monotonic() - self.begun >= self.options.confirm_after_s:
            self._confirm()
        else:
            self.next_check = max(time.monotonic(), self.begun + self.options.confirm_after_s)
        return ""

    def _check_failed(self, report: dict[str, Any]) -> str:
        self.failures += 1
        self.next_check = (
            time.monotonic() if self.failures < FAILURES_IN_A_ROW else time.monotonic() + self.options.every_s
        )
        self.say(f"release {self.number}: {report['problem']}")
        if self.failures < FAILURES_IN_A_ROW or not self.on_trial:
            return ""
        self._go_back(report["problem"])
        return report["problem"]

    def _confirm(self) -> None:
        self.next_check = time.monotonic() + self.options.every_s
        with self.home.locked():
            transitions.recover(self.home)
            if records.current_number(self.home) == self.number:
                transitions.confirm(self.home)
        self.on_trial = False
        self._tell("confirmed")

    def _go_back(self, why: str) -> None:
        with self.home.locked():
            transitions.recover(self.home)
            if records.current_number(self.home) == self.number and records.read_probation(self.home):
                origin = transitions.fail_current(self.home, why)
                self.say(f"release {self.number} was taken back; current is {origin or 'none'}")

    def _failed(self, why: str) -> str:
        """The try is spent; the next one begins, or the way back."""
        self.say(f"release {self.number}: {why}")
        with self._patient(), self.home.locked():
            running = records.read_probation(self.home)
            if running and running.release == self.number == records.current_number(self.home):
                if running.tries == 0:
                    transitions.fail_current(self.home, why)
                else:
                    transitions.end_attempt(self.home, give_back=False)
        return FAILED

    def _over(self, how: str) -> str:
        """It ended for a reason that says nothing against the release."""
        self.close()  # the lock may take a while
        with self._patient(), self.home.locked():
            if records.current_number(self.home) == self.number:
                transitions.end_attempt(self.home, give_back=True)
        return how

    @contextmanager
    def _patient(self) -> Iterator[None]:
        """What another command or a device without room keeps from being done is told, and tried again later."""
        try:
            yield
        except (ResourceError, OSError) as error:
            self.say(f"release {self.number}: {_text(error)}")
            self.next_check = time.monotonic() + LONGEST_PAUSE_S

    def _tell(self, what: str) -> None:
        line = f"release {self.number}{' on trial' if self.on_trial else ''}: {what}"
        self.say(line)
        self.notifier.send(f"STATUS={line}")


def _exit_text(code: int) -> str:
    return f"ended with exit code {code}" if code >= 0 else f"was ended by {processes.signal_name(-code)}"


def _text(error: Exception) -> str:
    if not isinstance(error, OSError):
        return str(error)
    return f"{error.strerror or error}{f' ({error.filename})' if error.filename else ''}"
