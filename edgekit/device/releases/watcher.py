"""Run a program with the current release, and check, confirm or roll back that release.

If another release becomes current, the program is started again with that one.

During probation, the program must start and keep running, and the release must reproduce its golden answers in time.
Nothing else about the program is checked; it may call `edgerun rollback` itself.
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
"""Failures in a row before a rollback, because other work on the device can make a single validation fail."""
LONGEST_PAUSE_S = 30.0
STOPPED, CHANGED, ENDED, FAILED, WAITING = "stopped", "changed", "ended", "failed", "waiting"


class WatchOptions(NamedTuple):
    """Options of a watch.

    `every_s` is the time between two checks, and `confirm_after_s` how long a release on probation must be healthy.
    """

    command: tuple[str, ...] = ()
    confirm_after_s: float = 60.0
    every_s: float = 300.0
    limits: ValidationLimits = DEFAULT
    interpreter: str | None = None


class Watcher:
    """Runs releases until SIGTERM, SIGINT or SIGHUP, or until the program of a confirmed release exits with code 0."""

    def __init__(self, home: Home, options: WatchOptions, report: Callable[[str], object]) -> None:
        self._home, self._options, self._report = home, options, report
        self._notifier = SystemdNotifier()
        self._stopping, self._pause_s = False, 0.0
        self._waits_for = ""
        self._inherited: list[int] = []

    def run(self) -> None:
        """Watch until stopped, or until the program of a confirmed release exits with code 0.

        Nothing is started while no release is current (for example after the first one was rolled back), while the
        policy refuses the current release, and while the device lacks what a start needs.

        Raises
        ------
        TrustError
            The home belongs to another user, or other users can write to it.
        ResourceError
            Another watch is running.
        """
        for which in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            if which != signal.SIGHUP or signal.getsignal(which) != signal.SIG_IGN:  # nohup ignores SIGHUP
                signal.signal(which, self._stop)
        while not self._stopping:
            number = self._begin()
            if number is None:
                self._wait(WAIT_S)
                continue
            attempt = Attempt(self._home, number, self._options, self._report, self._notifier)
            try:
                outcome = attempt.run(lambda: self._stopping, self._inherited)
                self._waits_for = ""
            except (ResourceError, TrustError) as error:
                outcome = WAITING
                self._report_waiting(f"release {number}: {error}", f"release {number}: {error.lasting}")
            finally:
                attempt.close()
            if outcome in (STOPPED, ENDED):
                break
            is_quick = outcome == FAILED and time.monotonic() - attempt.started < LONGEST_PAUSE_S
            is_quick = is_quick or outcome == WAITING
            self._pause_s = min(LONGEST_PAUSE_S, max(0.5, 2 * self._pause_s)) if is_quick else 0.0
            self._wait(self._pause_s)
        self._notifier.send("STOPPING=1")

    def _begin(self) -> int | None:
        """Spend an attempt and return the release to start, or None if nothing can be started now."""
        if not self._inherited and self._home.exists():
            self._inherited = [single_instance.claim_watch(self._home, self._report)]
        try:
            with self._home.locked():
                return transitions.begin_attempt(self._home, transitions.boot_id())
        except (ReleaseError, ResourceError) as error:
            self._report_waiting(str(error), error.lasting)
        except OSError as error:
            self._report_waiting(_text(error), _text(error))
        return None

    def _report_waiting(self, why: str, reason: str) -> None:
        """Report why nothing is started now, once for each reason.

        `why` is the message, which may contain the time. `reason` is the same without the time, for comparison.
        """
        if reason != self._waits_for:
            self._report(f"{why}; waiting")
            self._notifier.send("READY=1", f"STATUS=waiting: {why}")
        self._waits_for = reason

    def _wait(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not self._stopping:
            self._notifier.beat()
            time.sleep(LOOK_S)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self._stopping = True


class Attempt:
    """One start of a release, from the first moment of its program to its end."""

    def __init__(
        self, home: Home, number: int, options: WatchOptions, report: Callable[[str], object], notifier: SystemdNotifier
    ) -> None:
        self.home, self.number, self.options, self.report, self.notifier = home, number, options, report, notifier
        self.started = time.monotonic()
        self.next_check = self.started
        self.failures = 0
        self.passed_at: float | None = None
        self.validation: ValidationProcess | None = None
        self.process: subprocess.Popen[bytes] | None = None
        self.current, running = records.current_number(home), records.read_probation(home)
        self.is_on_probation = running is not None and running.release == number

    def run(self, stopping: Callable[[], bool], inherited: Collection[int]) -> str:
        """Start the release and watch it until the attempt ends. Returns how it ended.

        Raises TrustError or ResourceError if it could not be started for a reason that is not the release's fault.
        """
        self.notifier.beat()
        try:
            self._start(inherited)
        except RunnerError as error:
            self.notifier.beat()
            if not self._is_release_at_fault(error):
                self._end_without_fault(WAITING)
                raise
            return self._end_as_failed(str(error))
        while True:
            self.notifier.beat()
            if stopping():
                return self._end_without_fault(STOPPED)
            if self.process is not None and processes.has_ended(self.process):
                code = processes.end_process(self.process)
                if code == 0 and records.read_probation(self.home) is None:
                    return ENDED
                return self._end_as_failed(
                    f"the program {_exit_text(code)}{'' if code else ' before it was confirmed'}"
                )
            if records.current_number(self.home) != self.current:
                self.report(f"release {self.current} is no longer current")
                return CHANGED
            reason = ""
            with self._retried_later():
                reason = self._check()
            if reason:
                return self._end_as_failed(reason)
            time.sleep(LOOK_S)

    def close(self) -> None:
        """End a running validation, and the program, which gets time to stop after SIGTERM before it is killed."""
        if self.validation is not None:
            self.validation.close()
        if self.process is not None:
            if self.process.returncode is None and not processes.has_ended(self.process):
                self.process.terminate()
                deadline = time.monotonic() + single_instance.STOP_S
                while not processes.has_ended(self.process, LOOK_S) and time.monotonic() < deadline:
                    self.notifier.beat()
            processes.end_process(self.process)

    def _start(self, inherited: Collection[int]) -> None:
        release = current_release.Release.at(self.home, self.number)
        release.read()
        self._report_change("starting")
        if self.options.command:
            words = [word.replace("{bundle}", release.path) for word in self.options.command]
            self.process = single_instance.start_program(words, release.environment(), inherited)
        if not self.is_on_probation:
            self.notifier.send("READY=1")

    def _is_release_at_fault(self, error: RunnerError) -> bool:
        """Whether the release caused an error at its start, rather than something that would affect any release."""
        if not isinstance(error, (ResourceError, TrustError)):
            return True
        probation = records.read_probation(self.home)
        if isinstance(error, ResourceError) or not self.is_on_probation or probation is None:
            return False
        release = current_release.Release.at(self.home, self.number)
        try:
            current_release.read_checked(release.path, release.sha256)
        except TrustError:
            return True
        try:
            current_release.Release.at(self.home, probation.origin or 0).read()
        except RunnerError:
            return False
        return True

    def _check(self) -> str:
        """Start a validation if one is due, or handle its result. Returns what is wrong with a release on probation."""
        if self.validation is None:
            if time.monotonic() >= self.next_check:
                self.validation = ValidationProcess(
                    self.home, self.number, self.options.limits, self.options.interpreter
                )
            return ""
        report = self.validation.report()
        if report is None:
            return ""
        self.validation, is_first = None, self.passed_at is None
        if report["problem"]:
            return self._check_failed(report)
        self.failures, self.passed_at = 0, time.monotonic()
        if is_first:
            self.notifier.send("READY=1")
            self._report_change("answers as recorded")
        if not self.is_on_probation:
            self.next_check = time.monotonic() + self.options.every_s
        elif time.monotonic() - self.started >= self.options.confirm_after_s:
            self._confirm()
        else:
            self.next_check = max(time.monotonic(), self.started + self.options.confirm_after_s)
        return ""

    def _check_failed(self, report: dict[str, Any]) -> str:
        self.failures += 1
        self.next_check = (
            time.monotonic() if self.failures < FAILURES_IN_A_ROW else time.monotonic() + self.options.every_s
        )
        self.report(f"release {self.number}: {report['problem']}")
        if self.failures < FAILURES_IN_A_ROW or not self.is_on_probation:
            return ""
        self._roll_back(report["problem"])
        return report["problem"]

    def _confirm(self) -> None:
        self.next_check = time.monotonic() + self.options.every_s
        with self.home.locked():
            transitions.recover(self.home)
            if records.current_number(self.home) == self.number:
                transitions.confirm(self.home)
        self.is_on_probation = False
        self._report_change("confirmed")

    def _roll_back(self, why: str) -> None:
        with self.home.locked():
            transitions.recover(self.home)
            if records.current_number(self.home) == self.number and records.read_probation(self.home):
                origin = transitions.fail_current(self.home, why)
                self.report(f"release {self.number} was rolled back; the current release is {origin or 'none'}")

    def _end_as_failed(self, why: str) -> str:
        """End the attempt as failed. If it was the last one, roll the release back."""
        self.report(f"release {self.number}: {why}")
        with self._retried_later(), self.home.locked():
            probation = records.read_probation(self.home)
            if probation and probation.release == self.number == records.current_number(self.home):
                if probation.tries == 0:
                    transitions.fail_current(self.home, why)
                else:
                    transitions.end_attempt(self.home, give_back=False)
        return FAILED

    def _end_without_fault(self, how: str) -> str:
        """End the attempt for a reason that does not count against the release."""
        self.close()  # closed first, because waiting for the lock may take a while
        with self._retried_later(), self.home.locked():
            if records.current_number(self.home) == self.number:
                transitions.end_attempt(self.home, give_back=True)
        return how

    @contextmanager
    def _retried_later(self) -> Iterator[None]:
        """If another command or a full disk prevents what the block does, report that and try again later."""
        try:
            yield
        except (ResourceError, OSError) as error:
            self.report(f"release {self.number}: {_text(error)}")
            self.next_check = time.monotonic() + LONGEST_PAUSE_S

    def _report_change(self, what: str) -> None:
        line = f"release {self.number}{' on probation' if self.is_on_probation else ''}: {what}"
        self.report(line)
        self.notifier.send(f"STATUS={line}")


def _exit_text(code: int) -> str:
    return f"ended with exit code {code}" if code >= 0 else f"was terminated by {processes.signal_name(-code)}"


def _text(error: Exception) -> str:
    if not isinstance(error, OSError):
        return str(error)
    return f"{error.strerror or error}{f' ({error.filename})' if error.filename else ''}"
