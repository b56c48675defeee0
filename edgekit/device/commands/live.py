"""`edgerun live`: cameras, microphones and sensors through models and rules to events, messages and a page."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from edgekit.device.commands import _metrics, _options, _watch
from edgekit.runner import extension
from edgekit.runner.commands import _shared, _stream
from edgekit.runner.errors import InputError

if TYPE_CHECKING:
    from edgekit.device.live.config import LiveConfig
    from edgekit.device.live.session import Session
    from edgekit.device.live.types import Answer, Event
    from edgekit.runner.bundle.manifest import Manifest
    from edgekit.runner.model import Model

HELP = "answer cameras, microphones and sensors as they come, turn answers into events, and show them on a page"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "bundles", metavar="BUNDLE", nargs="*", help="a file that ends in .edge.zip, or current for the release"
    )
    parser.add_argument(
        "--from", dest="sources", metavar="SOURCE", action="append", default=[],
        help="where frames come from, such as v4l2:/dev/video0, rpicam, rtsp://…, alsa:default or a film; several may "
        "be given, with names as in door=rtsp://…",
    )  # fmt: skip
    parser.add_argument(
        "--to", dest="sinks", metavar="SINK", action="append", default=[],
        help="where events go besides standard output, such as mqtt://broker/edgekit; several may be given",
    )  # fmt: skip
    parser.add_argument(
        "--rule", dest="rules", metavar="KEY=VALUE", nargs="+", action="append", default=[],
        help="what is an event, such as label=person threshold=0.6 on_after_s=1; once for each rule "
        "(default: every change of the answer is printed)",
    )  # fmt: skip
    parser.add_argument("--config", metavar="FILE", help="live.yaml or live.json with all of this")
    parser.add_argument("--json", action="store_true", help="print events as JSON")
    parser.add_argument("--frames", metavar="N", type=_shared.positive, help="stop after N frames")
    _add_source_arguments(parser)
    page = parser.add_argument_group("the page")
    page.add_argument(
        "--page",
        metavar="PORT",
        help="show pictures, answers and figures at this port, or at HOST:PORT for other machines, with a token",
    )
    page.add_argument(
        "--token-file",
        metavar="FILE",
        help="file that holds the page's token (default: a new one in the device's home)",
    )
    page.add_argument(
        "--keep", metavar="FOLDER", help="where the page keeps samples, and the most uncertain of each day"
    )
    record = parser.add_argument_group("recordings of answers")
    record.add_argument("--record", metavar="FILE", help="write every answer as a line of JSON")
    record.add_argument(
        "--replay", metavar="FILE", help="give the rules a recording, in place of sources, and print the events"
    )
    parser.add_argument(
        "--stall-after", metavar="S", type=_options.non_negative_number,
        help="end with exit code 5 if the model does not answer for so long (default: 30)",
    )  # fmt: skip
    _metrics.add_arguments(parser)
    _watch.add_arguments(parser)
    _shared.add_interpreter_arguments(parser)
    parser.set_defaults(misuse=parser.error)


def _add_source_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("options of the sources that --from names")
    group.add_argument("--rate", metavar="HZ", type=_options.non_negative_number, help="frames per second at most")
    group.add_argument("--size", metavar="WxH", type=_stream.size, help="size to ask of a camera on this device")
    group.add_argument("--rotate", metavar="DEGREES", type=int, choices=(0, 90, 180, 270), help="turn clockwise")
    group.add_argument("--flip", choices=("horizontal", "vertical", "both"), help="mirror, after the turn")
    group.add_argument("--loop", action="store_true", help="begin a film or folder again at its end")
    group.add_argument(
        "--no-realtime", action="store_true", help="answer every frame of a film, as fast as the model can"
    )


def run(options: argparse.Namespace) -> None:
    """Answer until the sources end, or until SIGTERM or Ctrl-C."""
    from edgekit.device.live import config as configs

    for path in options.bundles:
        configs.check_bundle(path)
    config = _config(options)
    if options.replay is not None:
        _replay(config, options)
        return
    with _naming_file(options, config):
        configs.check(config)
    with ExitStack() as stack:
        state: dict[str, Any] = {}
        stack.enter_context(_stopping(state))
        metrics = stack.enter_context(_metrics.open_metrics(options.metrics))
        models = {each.name: _open_model(each.path, options, config, metrics) for each in config.models}
        for model in models.values():
            stack.callback(model.observers.close)
            stack.enter_context(_watch.report_verdicts(model, options.watch))
        _run(config, models, options, state)


def _run(config: LiveConfig, models: dict[str, Model], options: argparse.Namespace, state: dict[str, Any]) -> None:
    from edgekit.device.live.session import Session

    is_quiet = any(each.address in ("-", "jsonl:-") for each in config.sinks)
    with _naming_file(options, config):
        session = Session(
            config,
            models,
            (lambda event: None) if is_quiet else lambda event: _print_event(event, options.json),
            (lambda answer, headline: None)
            if is_quiet
            else lambda answer, headline: _print_answer(answer, headline, options.json),
            _shared.warn,
        )
    state["session"] = session
    try:
        _shared.warn(_describe(session))
        if not state["is_stopping"]:
            session.run(options.frames)
    finally:
        session.close()


def _config(options: argparse.Namespace) -> LiveConfig:
    from edgekit.device.live import config as configs

    named = {"rate": options.rate, "size": options.size, "rotate": options.rotate, "flip": options.flip}
    given = {key: value for key, value in named.items() if value is not None}
    given.update({"loop": True} if options.loop else {}, **({"realtime": False} if options.no_realtime else {}))
    if given and not options.sources:
        options.misuse("--rate, --size, --rotate, --flip, --loop and --no-realtime apply only to --from")
    if options.token_file and not options.page:
        options.misuse("--token-file applies only with --page")
    rules = [configs.parse_rule(words, number) for number, words in enumerate(options.rules)]
    more = configs.LiveConfig(
        models=tuple(configs.model_of(path) for path in options.bundles),
        sources=configs.parse_sources(options.sources, given),
        rules=tuple(rules),
        sinks=tuple(configs.SinkConfig(address) for address in options.sinks),
        page=configs.parse_page(options.page, options.token_file) if options.page else None,
        keep=options.keep,
        record=options.record,
    )
    config = configs.read(options.config) if options.config else configs.LiveConfig()
    merged = configs.merge(config, more)
    if options.no_trial and merged.parallel is None:
        merged = replace(merged, parallel=1)
    return merged if options.stall_after is None else replace(merged, stall_s=max(0.1, options.stall_after))


def _open_model(path: str, options: argparse.Namespace, config: LiveConfig, metrics: Any) -> Model:
    named = argparse.Namespace(**{**vars(options), "bundle": path})
    return _shared.load(named, metrics=metrics, monitor=options.watch, keep=config.keep)


@contextmanager
def _naming_file(options: argparse.Namespace, config: LiveConfig) -> Iterator[None]:
    """Put the name of the configuration file in front of a message about one of its rules, sources or sinks."""
    try:
        yield
    except InputError as error:
        rules = config.rules[: len(config.rules) - len(options.rules)]  # those of the command line come last
        sources = config.sources[: len(config.sources) - len(options.sources)]
        names = [f"rules.{each['name']}" for each in rules] + [f"sources.{each.name}" for each in sources]
        names += ["sink ", "sink:"] if len(config.sinks) > len(options.sinks) else []
        if not str(error).startswith(tuple(names)):
            raise
        raise InputError(f"{options.config}: {error}") from None


@contextmanager
def _stopping(state: dict[str, Any]) -> Iterator[None]:
    """Let SIGTERM and Ctrl-C end the session in order. Before it has begun, they end the program at once."""
    state.update(session=None, is_stopping=False)

    def stop(number: int, frame: Any) -> None:
        session: Session | None = state["session"]
        if session is None or (number == signal.SIGINT and state["is_stopping"]):
            raise KeyboardInterrupt(*(["SIGTERM"] if number == signal.SIGTERM else []))
        state["is_stopping"] = True
        session.stop()

    previous = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler or signal.SIG_DFL)


def _describe(session: Session) -> str:
    models = ", ".join(
        f"{model.manifest.name} {model.manifest.version} ({model.backend.name}, threads: {model.threads})"
        for model in session.models.values()
    )
    text = f"{models} on {', '.join(each.name for each in session.config.sources)}"
    if len(session.copies) > 1:
        text += f"; {len(session.copies)} frames at once"
        if session.copies.gain is not None:
            text += f", which answers {session.copies.gain:.1f} times as many"
    if session.page:
        text += f"; page: {session.page.url}"
        if session.page.token_path:
            text += f", token in {session.page.token_path}"
    return text


def _print_event(event: Event, as_json: bool) -> None:
    if as_json:
        _shared.print_json(event.to_dict())
        sys.stdout.flush()
        return
    details = event.details
    what = f"{event.label} {details['count']}" if "count" in details else f"{event.label} {_score(event)}"
    print(f"{_clock(event.time_s)} {event.source} {event.rule} {event.kind}: {what.strip()}", flush=True)


def _score(event: Event) -> str:
    return f"{event.score:.0%}" if 0 < event.score <= 1 else f"{event.score:.4g}" if event.score else ""


def _print_answer(answer: Answer, headline: str, as_json: bool) -> None:
    if as_json:
        fields = {"source": answer.source, "frame": answer.number, "time": answer.time_s}
        _shared.print_json({**answer.content, **fields})
        sys.stdout.flush()
    else:
        print(f"{_clock(answer.time_s)} {answer.source}: {headline}", flush=True)


def _clock(time_s: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(time_s))


def _replay(config: LiveConfig, options: argparse.Namespace) -> None:
    """Print the events that the rules give to a recording."""
    from edgekit.device.live import config as configs
    from edgekit.device.live import recording
    from edgekit.device.live.rules import Rules

    if config.record or options.sources or options.sinks or options.page:
        options.misuse("--replay takes neither --from, --to, --page nor --record")
    if not config.models:
        raise InputError("--replay: name the BUNDLE whose answers were recorded")
    if not config.rules:
        raise InputError("--replay: there are no rules; add --rule, or --config with rules")
    sources = [each.name for each in config.sources] or None
    rules = {}
    with _naming_file(options, config):
        configs.check_rule_models(config)
        for model in config.models:
            chosen = configs.rules_of(config, model.name)
            manifest = _manifest(model.path)
            rules[model.name] = Rules.from_config(chosen, manifest.labels, manifest.task, sources=sources)
    for event in recording.replay(options.replay, rules, has_all_sources=not sources):
        _print_event(event, options.json)


def _manifest(path: str) -> Manifest:
    if path != "current":
        return extension.find().read(path).manifest
    from edgekit.device.releases import current_release
    from edgekit.runner import bundle

    release = current_release.find_release()
    return bundle.read_bytes(release.read(), release.path).manifest
