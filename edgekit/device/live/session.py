"""A run of `edgerun live`: opens what a configuration names, checks it before the first frame, and runs the engine."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit.device.hardware import health
from edgekit.device.live import config as configs
from edgekit.device.live import copies, recording, sinks, sources
from edgekit.device.live.engine import KINDS, Engine, Lane
from edgekit.device.live.feeds import Feed
from edgekit.device.live.outbox import Outbox
from edgekit.device.live.page import Page, Picture
from edgekit.device.live.pictures import Painter, encode_jpeg
from edgekit.device.live.rules import Rules
from edgekit.device.live.sinks import clips
from edgekit.device.live.summary import summary
from edgekit.runner import device_home
from edgekit.runner.errors import InputError, ResourceError

if TYPE_CHECKING:
    from edgekit.device.live.sinks import Sink
    from edgekit.device.live.types import Answer, Event, Frame
    from edgekit.device.monitor.uncertain import UncertainSamples
    from edgekit.runner.model import Model

STALLED_CODE = 5
LOOK_S = 0.5
STOP_S = 1.5
"""A model's call that lasts this long after `stop` is not waited for."""
CLOSE_S, LAST_EVENTS_S = 0.5, 5.0
"""Time for each part to close, and for the sinks to deliver what is left once the sources have ended by themselves."""
EVENTS_WAITING, LINES_WAITING, ANSWERS_WAITING, PICTURES_WAITING = 256, 1000, 10_000, 8
VERDICT_S = 10.0
"""The verdict of a monitor is derived this often while somebody looks at the page."""
MOST_RECORD_BYTES = 2 << 30


class Session:
    """Everything that runs. Create it, call `run`, and always `close`.

    Parameters
    ----------
    config : LiveConfig
        What to run; see `edgekit.device.live.config.check`.
    models : dict of Model
        The opened models by the names in `config`.
    on_event : callable
        Called in a thread of its own with each event. It may wait.
    on_change : callable
        Called in the same thread with each answer whose first line differs from the one before, if there are no rules.
    report : callable
        Called with a line about anything that a person should know.

    Raises
    ------
    InputError
        A source, rule, sink or the page cannot work. The message is one line.
    """

    def __init__(
        self,
        config: configs.LiveConfig,
        models: Mapping[str, Model],
        on_event: Callable[[Event], object],
        on_change: Callable[[Answer, str], object],
        report: Callable[[str], object],
    ) -> None:
        self.config, self.models, self._write_line = config, models, report
        self._on_event, self._on_change = on_event, on_change
        self.home = Path(device_home.find_home()) / "live"
        self._kept: dict[str, UncertainSamples] = {}
        self._shown: dict[str, list[Lane]] = {}
        self._sent: dict[str, list[Any]] = {}
        self._closing: list[Callable[[], object]] = []
        self._headlines: dict[int, str] = {}
        self._verdicts: dict[str, tuple[float, Any]] = {}
        self._reported: dict[str, str] = {}
        self.stopping_s: float | None = None
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        config, models = self.config, self.models
        self.rules = {name: self._rules(name, model) for name, model in models.items()}
        pairs = self._pairs()
        self.copies = copies.choose(list(models.values()), len(config.sources), config.parallel)
        self._sinks = [self._open_sink(each) for each in config.sinks]
        opened = {each.name: self._open_source(each, pairs[each.name]) for each in config.sources}
        self._closing += [source.close for source in opened.values()]
        for sink in self._sinks:
            try:
                sink.check()
            except sinks.UnreachableError as error:
                self.report(f"{error}; events wait for it")
                self._reported[f"sink {sink.name}"] = "retrying"
        self._check_sources(opened)
        feeds = [Feed(source, source.waits()) for source in opened.values()]
        lanes = [Lane(models[name], source, self.rules[name]) for source, names in pairs.items() for name in names]
        self.names = {id(model): name for name, model in models.items()}
        self._painters = {name: Painter(model.manifest) for name, model in models.items()}
        self._shown = {source: [lane for lane in lanes if lane.source == source] for source in opened}
        self._recorder = Recorder(config.record) if config.record else None
        self.page = self._open_page() if config.page else None
        self.engine = Engine(feeds, lanes, self._answered, self.report, self.copies)
        self._has_rules = bool(config.rules)

    def run(self, frames: int | None = None) -> None:
        """Answer until the sources have ended, `stop` is called, or `frames` frames were answered."""
        self._lines = Outbox("lines", self._print, LINES_WAITING)
        self._events = Outbox("events", self._deliver, EVENTS_WAITING)
        for sink in self._sinks:
            sink.start()
        self._filming = [sink for sink in self._sinks if sink.clip_s]
        self._films = Outbox("clips", self._film, PICTURES_WAITING)
        self._filmed: dict[str, float] = {}
        if self.page:
            self.page.start()
        watching = threading.Thread(target=self._watch, name="edgerun watching", daemon=True)
        watching.start()
        try:
            self.engine.run(frames)
        finally:
            self._finish()
        if self._lines.problem is not None:
            raise self._lines.problem

    def report(self, line: str) -> None:
        """Report a line, unless nobody reads such lines any more."""
        with suppress(OSError):
            self._write_line(line)

    def stop(self) -> None:
        """Let `run` return soon. A signal handler may call it."""
        if self.stopping_s is None:
            self.stopping_s = time.monotonic()
        self.engine.stop()

    def close(self) -> None:
        """Close what is open: sources, page and files."""
        threads = [threading.Thread(target=each, daemon=True) for each in self._closing]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(CLOSE_S)
        self._closing.clear()

    def _finish(self) -> None:
        """Hand over what is pending, for a moment, and close. The sources are closed first, so that nothing comes."""
        sinks_s = CLOSE_S if self.stopping_s is not None else LAST_EVENTS_S
        self.stopping_s = self.stopping_s or time.monotonic()
        self.engine.close(CLOSE_S)
        self._events.close(sinks_s)
        self._lines.close(sinks_s)
        self._films.close(CLOSE_S)
        closing = [threading.Thread(target=sink.close, args=(sinks_s,), daemon=True) for sink in self._sinks]
        for thread in closing:
            thread.start()
        for thread in closing:
            thread.join(sinks_s + CLOSE_S)
        if self._recorder:
            self._recorder.close()
        self._report_losses()
        for sink in self._sinks:
            if waiting := sink.status().waiting:
                self.report(f"sink {sink.name}: events that wait for the next start: {waiting} at most")
        self.close()

    def _rules(self, name: str, model: Model) -> Rules:
        manifest, sources = model.manifest, [each.name for each in self.config.sources]
        return Rules.from_config(configs.rules_of(self.config, name), manifest.labels, manifest.task, sources=sources)

    def _pairs(self) -> dict[str, list[str]]:
        """Return the names of the models that answer each source."""
        for name, model in self.models.items():
            if model.manifest.raw.kind not in KINDS:
                raise InputError(
                    f"{name}: takes {model.manifest.raw.kind}; live takes pictures, sound or rows of numbers"
                )
        return {each.name: list(each.models or self.models) for each in self.config.sources}

    def _open_source(self, source: configs.SourceConfig, names: list[str]) -> Any:
        raws = [self.models[name].manifest.raw for name in names]
        opened = sources.open_source(source.address, sources.SourceOptions(name=source.name, **source.options), raws[0])
        for name, raw in zip(names, raws):
            fits = raw == raws[0] if opened.kind != "picture" else raw.kind == "image" and raw.dtype == "uint8"
            if not fits:
                raise InputError(
                    f"sources.{source.name}: gives {opened.kind} for {names[0]}, which {name} does not take; "
                    "name its model with `model`"
                )
        return opened

    def _open_sink(self, sink: configs.SinkConfig) -> Sink:
        first = next(iter(self.models.values())).manifest
        labels = list(dict.fromkeys(label for model in self.models.values() for label in model.manifest.labels))
        kinds = {KINDS[model.manifest.raw.kind] for model in self.models.values()}
        configured = [each for rules in self.rules.values() for each in rules.configs]
        context = sinks.SinkContext(
            device_id=socket.gethostname(),
            bundle_name=first.name,
            version=first.version,
            labels=labels,
            sources={each.name: self._kind_of(each, kinds) for each in self.config.sources},
            rules={each.name: _rule_kind(each.count) for each in configured},
            home=self.home,
            watched={each.name: each.sources for each in configured if each.sources},
        )
        return sinks.open_sink({"to": sink.address, **sink.options}, context)

    def _kind_of(self, source: configs.SourceConfig, kinds: set[str]) -> str:
        names = source.models or tuple(self.models)
        return KINDS[self.models[names[0]].manifest.raw.kind] if len(kinds) > 1 else next(iter(kinds))

    def _check_sources(self, opened: Mapping[str, Any]) -> None:
        """Wait for the first frame of every source, side by side, and check the rules against the pictures."""
        problems: dict[str, BaseException] = {}

        def check(name: str, source: Any) -> None:
            try:
                source.check()
            except BaseException as error:
                problems[name] = error

        threads = [threading.Thread(target=check, args=item, daemon=True) for item in opened.items()]
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():  # so that Ctrl-C is not delayed
                thread.join(LOOK_S)
        if problems:
            raise next(problems[name] for name in opened if name in problems)
        for name, source in opened.items():
            status = source.status()
            for rules in self.rules.values():
                if status.width:
                    rules.check_picture((status.width, status.height), name)

    def _open_page(self) -> Page:
        assert self.config.page is not None
        facts = {
            "title": ", ".join(f"{model.manifest.name} {model.manifest.version}" for model in self.models.values()),
            "sources": [{"name": name, "kind": self._kind(lanes)} for name, lanes in self._shown.items()],
            "models": {name: model.bundle.text.decode() for name, model in self.models.items()},
            "pictures": _has_pillow(),
        }
        page = Page(self.config.page, self.home, facts, self.state, self._picture, self._keep, self.report)
        self._closing.append(page.close)
        return page

    @staticmethod
    def _kind(lanes: list[Lane]) -> str:
        return KINDS[lanes[0].model.manifest.raw.kind]

    def _answered(self, lane: Lane, answer: Answer, events: list[Event]) -> None:
        if self._recorder:
            name = self.names[id(lane.model)] if len(self.models) > 1 else ""
            self._recorder.add(replace(answer, model=name))
        if self._filming and lane.shown is not None:
            self._add_to_films(lane.shown.frame)
        if events:
            self._events.put((lane.source, lane.shown, self.names[id(lane.model)], events))
            for event in events:
                self._lines.put(event)
        elif not self._has_rules and lane.shown is not None:
            headline = lane.shown.headline
            if self._headlines.get(id(lane)) != headline:
                self._headlines[id(lane)] = headline
                self._lines.put((answer, headline))

    def _add_to_films(self, frame: Frame) -> None:
        """Pass a picture on to the sinks that make films, at most `clips.RATE` times a second."""
        last_s = self._filmed.get(frame.source, float("-inf"))
        if self._kind(self._shown[frame.source]) == "picture" and not 0 <= frame.time_s - last_s < 0.9 / clips.RATE:
            self._filmed[frame.source] = frame.time_s
            self._films.put(frame)

    def _film(self, frame: Frame) -> None:
        try:
            picture = encode_jpeg(frame.data)
        except Exception as error:  # the films go on without it
            self._report_once("clips", f"a picture cannot be encoded: {type(error).__name__}: {error}")
            return
        for sink in self._filming:
            sink.add_picture(frame.source, frame.time_s, picture)

    def _print(self, item: Any) -> None:
        if isinstance(item, tuple):
            self._on_change(*item)
        else:
            self._on_event(item)

    def _deliver(self, item: tuple[str, Any, str, list[Event]]) -> None:
        """Send events to the page and the sinks. The picture is drawn once."""
        source, shown, model, events = item
        if self.page:
            for event in events:
                self.page.add_event(event.to_dict())
        if not self._sinks:
            return
        picture = None
        if self._kind(self._shown[source]) == "picture" and _has_pillow():
            try:
                picture = encode_jpeg(self._painters[model].draw(shown.frame.data, shown.outputs, shown.headline))
            except Exception as error:  # the event is sent without it
                self._report_once("picture", f"cannot be drawn: {type(error).__name__}: {error}")
        for event in events:
            for sink in self._sinks:
                try:
                    sink.send(event, picture)
                except Exception as error:  # the others must have the event
                    self._report_once(f"{sink.name}: event", f"{type(error).__name__}: {error}")

    def _watch(self) -> None:
        """Report what changes about sources and sinks, and end the process if a model has stalled."""
        while True:
            time.sleep(LOOK_S)
            stopping_s = self.stopping_s
            if self.engine.stalled_s > self.config.stall_s:
                self.report(f"the model has not answered for {self.config.stall_s:g} s; ending")
                os._exit(STALLED_CODE)
            if stopping_s is not None and time.monotonic() - stopping_s > STOP_S:
                if self.engine.called_s is not None:
                    os._exit(0)
                return
            if stopping_s is None:
                self._report_changes()
                if self.page:
                    self.page.end_if_hung()
            if self._lines.problem is not None:  # nobody reads what is printed
                self.stop()

    def _report_changes(self) -> None:
        for feed in self.engine.feeds.feeds:
            status = feed.source.status()
            is_well = status.state in ("starting", "running", "ended") and not (
                status.state == "ended" and status.detail
            )
            self._report_once(feed.name, "" if is_well else f"{status.state}: {status.detail}", status.state)
        for sink in self._sinks:
            state = sink.status()
            problem = _without_name(state.detail, sink) if state.state == "retrying" else ""
            self._report_once(f"sink {sink.name}", problem, state.state)
        self._report_losses()

    def _report_losses(self) -> None:
        """Report the first time that events, lines or answers were lost."""
        for sink in self._sinks:
            state = sink.status()
            if state.failed:
                detail = _without_name(state.detail, sink) or "the queue was full"
                self._report_once(f"sink {sink.name}: an event failed", detail)
                if sink.name == "jsonl:-":  # nobody reads what is printed
                    self.stop()
        for outbox, where in ((self._events, "the sinks"), (self._lines, "standard output")):
            if outbox.dropped:
                self._report_once(where, "events are missing, because they came too fast")
        if self._recorder and self._recorder.trouble:
            self._report_once("record", self._recorder.trouble)

    def _report_once(self, name: str, problem: str, state: str = "failing") -> None:
        """Report a problem when it begins, and its end. While it lasts, other words for it are not repeated."""
        key = state if problem else ""
        if key == self._reported.get(name, ""):
            return
        self._reported[name] = key
        self.report(f"{name}: {problem}" if problem else f"{name}: works again")

    def _picture(self, source: str) -> Picture | None:
        """Return the last picture of a source for the page, and remember it in case somebody keeps it."""
        lanes = [lane for lane in self._shown[source] if lane.shown is not None]
        shown = [lane.shown for lane in lanes]
        if not shown or shown[0] is None:
            return None
        self._sent[source] = list(zip(lanes, shown))
        first = shown[0]
        answers = [
            (self.names[id(lane.model)], each.outputs, each.headline)
            for lane, each in zip(lanes, shown)
            if each is not None and each.frame.number == first.frame.number
        ]
        return Picture(first.frame.number, first.frame.data, tuple(answers))

    def _keep(self, source: str) -> str:
        """Keep the picture that was last sent to the page, or the last sample of a source without pictures."""
        pairs = self._sent.get(source) or [(lane, lane.shown) for lane in self._shown[source] if lane.shown is not None]
        if not pairs:
            raise ResourceError(f"{source}: nothing has been answered yet")
        for lane, shown in pairs:
            self._keeper(lane.model).keep(shown.raw, shown.outputs, shown.prediction)
        return f"kept in {self._keep_folder}"

    @property
    def _keep_folder(self) -> str:
        return self.config.keep or str(self.home / "kept")

    def _keeper(self, model: Model) -> UncertainSamples:
        from edgekit.device.monitor.uncertain import UncertainSamples

        name = self.names[id(model)]
        if name not in self._kept:
            attached = next((each for each in model.observers if isinstance(each, UncertainSamples)), None)
            self._kept[name] = attached or UncertainSamples.of(model, self._keep_folder)
        return self._kept[name]

    def state(self) -> dict[str, Any]:
        """Return the present state for JSON."""
        now, machine = time.monotonic(), health.read_health()
        resident = machine.resident_bytes
        return {
            "time": time.time(),
            "sources": [self._source_state(feed, now) for feed in self.engine.feeds.feeds],
            "sinks": [{**vars(sink.status()), "name": sink.name} for sink in self._sinks],
            "models": [{"name": name, "verdict": self._verdict(name, model)} for name, model in self.models.items()],
            "machine": {
                "temperature_c": machine.temperature_c,
                "throttled": machine.throttled,
                "under_voltage": machine.under_voltage,
                "resident_mb": None if resident is None else round(resident / 1e6),
            },
        }

    def _source_state(self, feed: Feed, now: float) -> dict[str, Any]:
        status = feed.source.status()
        answers = []
        for lane in self._shown[feed.name]:
            shown = lane.shown
            answers.append(
                {
                    "model": self.names[id(lane.model)],
                    "rate": round(lane.timing.rate(now), 2),
                    "answered": lane.timing.count,
                    "refused": lane.refused,
                    "timing": lane.timing.to_dict(),
                    **(summary(shown.smoothed or shown.prediction) if shown else {}),
                }
            )
        return {**vars(status), "name": feed.name, "dropped": status.dropped + feed.dropped, "answers": answers}

    def _verdict(self, name: str, model: Model) -> dict[str, str] | None:
        """Return the verdict of a model's monitor, which is derived only now and then."""
        if model.monitor is None:
            return None
        derived_s, verdict = self._verdicts.get(name, (float("-inf"), None))
        if time.monotonic() - derived_s > VERDICT_S:
            verdict = model.monitor.verdict()
            self._verdicts[name] = time.monotonic(), verdict
        return {"level": verdict.level, "reason": verdict.reason}


class Recorder:
    """Writes answers to a recording in a thread of its own. Raises ResourceError if the file cannot be written."""

    def __init__(self, path: str) -> None:
        self.path, self._bytes = path, 0
        try:
            self._stream = open(path, "wb", buffering=0)  # noqa: SIM115  (open until `close`)
        except OSError as error:
            raise ResourceError(f"record: {path}: {error.strerror or error}; name a file that can be written") from None
        self._outbox = Outbox("record", self._write, ANSWERS_WAITING)

    def add(self, answer: Answer) -> None:
        """Add an answer. Never waits for the disk."""
        self._outbox.put(answer)

    @property
    def trouble(self) -> str:
        """What is wrong with the recording, or ""."""
        if self._outbox.problem is not None:
            return f"{self.path}: {self._outbox.problem}; it ends here"
        return f"{self.path}: the disk is too slow, answers are missing" if self._outbox.dropped else ""

    def close(self) -> None:
        """Write what is pending, for a second at most."""
        self._outbox.close(1.0)
        self._stream.close()

    def _write(self, answer: Answer) -> None:
        line = recording.to_line(answer).encode()
        self._bytes += len(line)
        if self._bytes > MOST_RECORD_BYTES:
            raise ResourceError(f"it has reached {MOST_RECORD_BYTES >> 30} GB")
        self._stream.write(line)


def _without_name(detail: str, sink: Sink) -> str:
    return detail.removeprefix(f"sink {sink.name}: ")


def _rule_kind(count: str) -> str:
    """Return the kind of a rule for `SinkContext`."""
    return "occupancy" if count == "occupancy" else "count" if count else "state"


def _has_pillow() -> bool:
    import importlib.util

    return importlib.util.find_spec("PIL") is not None
