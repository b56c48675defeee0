"""The group `edgekit fleet`: options, and the work handed on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgekit.cli.exit_codes import errors_as_exit_codes
from edgekit.cli.help import bare_switches

if TYPE_CHECKING:
    from edgekit.fleet.rollout.selection import FleetSelection

KEPT = "devices keep what they have"
Bundle = Annotated[Path, typer.Argument(metavar="BUNDLE", help="A NAME-TARGET-VERSION.edge.zip.")]
To = Annotated[Path, typer.Option(metavar="HOSTS", help="The inventory, hosts.yaml.")]
Only = Annotated[list[str] | None, typer.Option(metavar="NAME", help="Only this device. Repeat for more.")]
Class = Annotated[str | None, typer.Option("--class", metavar="NAME", help="Only devices of this class.")]
Parallel = Annotated[int, typer.Option(min=1, max=1000, help="So many devices at once.")]
Wheels = Annotated[
    Path | None, typer.Option(metavar="DIR", help="Folder with wheels for devices that lack numpy or an interpreter.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object for each device.")]

app = typer.Typer(no_args_is_help=True, help="Bring bundles to many devices over SSH, and ask how they are.")


@app.command()
def push(
    bundle: Bundle,
    to: To,
    only: Only = None,
    class_: Class = None,
    canary: Annotated[int, typer.Option(min=0, help="Devices of each class that come first.")] = 1,
    share: Annotated[str, typer.Option(metavar="SHARE", help="Of each class, before all others.")] = "10%",
    parallel: Parallel = 32,
    confirm: Annotated[bool, typer.Option("--confirm", help="Confirm from here, at once.")] = False,
    wait: Annotated[
        float, typer.Option(min=0, help="Seconds for a device to confirm; 0: its proof is enough.")
    ] = 180.0,
    wheels: Wheels = None,
    trust: Annotated[Path | None, typer.Option(metavar="DIR", help="Bring this signed policy, too.")] = None,
    latency_ms: Annotated[
        float | None, typer.Option(min=0, help="Most p50 there, 0: any; by default the bundle's budget.")
    ] = None,
    send_only: Annotated[bool, typer.Option("--send-only", help="Install nothing; another push does.")] = False,
    json_: Json = False,
) -> None:
    """Send a bundle to all devices, then install it in waves, and stop at the first doubt.

    The same command goes on after an interruption.

    Exit codes, of the worst device: 2 hosts.yaml, 4 bundle, 5 fails there, 6 died, 7 unreachable or full, 8 trust.
    """
    with errors_as_exit_codes(KEPT):
        from edgekit.fleet.rollout import push as command

        chosen = _chosen(to, only, class_, parallel)
        options = (canary, share, confirm, wait, wheels, trust, latency_ms, send_only)
        request = command.PushRequest(bundle, chosen, *options)
        _end(command.run(request, json_))


@app.command()
def status(
    to: To,
    only: Only = None,
    class_: Class = None,
    parallel: Parallel = 32,
    json_: Json = False,
    all_: Annotated[
        bool, typer.Option("--all", help="List every device; of more than 20, only those that need attention are.")
    ] = False,
) -> None:
    """Show which release is current on each device, and why others failed."""
    with errors_as_exit_codes(KEPT):
        from edgekit.fleet.rollout import status as command

        _end(command.run(_chosen(to, only, class_, parallel), json_, all_))


@app.command()
def confirm(
    bundle: Bundle, to: To, only: Only = None, class_: Class = None, parallel: Parallel = 32, json_: Json = False
) -> None:
    """Keep a bundle on the devices where it is on trial."""
    with errors_as_exit_codes(KEPT):
        from edgekit.fleet.rollout import change

        _end(change.confirm(bundle, _chosen(to, only, class_, parallel), json_))


@app.command()
def rollback(
    bundle: Bundle,
    to: To,
    why: Annotated[str, typer.Option(metavar="TEXT", help="Kept with the release.")] = "taken back from the desk",
    only: Only = None,
    class_: Class = None,
    parallel: Parallel = 32,
    json_: Json = False,
) -> None:
    """Take a bundle back where it is current: devices go back to the release before."""
    with errors_as_exit_codes(KEPT):
        from edgekit.fleet.rollout import change

        _end(change.roll_back(bundle, _chosen(to, only, class_, parallel), why, json_))


@app.command()
def bench(
    bundle: Bundle,
    to: To,
    calls: Annotated[int, typer.Option(min=10, max=1_000_000, help="Timed calls.")] = 1000,
    only: Only = None,
    class_: Class = None,
    parallel: Parallel = 32,
    wheels: Wheels = None,
    json_: Json = False,
) -> None:
    """Time a bundle on each device; nothing is installed."""
    with errors_as_exit_codes(KEPT):
        from edgekit.fleet.rollout import bench as command

        _end(command.run(bundle, _chosen(to, only, class_, parallel), calls, wheels, json_))


@app.command()
def doctor(
    bundle: Bundle, to: To, only: Only = None, class_: Class = None, parallel: Parallel = 32, json_: Json = False
) -> None:
    """Report what would keep a bundle from running on each device."""
    with errors_as_exit_codes(KEPT):
        from edgekit.fleet.rollout import doctor as command

        _end(command.run(bundle, _chosen(to, only, class_, parallel), json_))


bare_switches(app)


def _chosen(to: Path, only: list[str] | None, class_: str | None, parallel: int) -> FleetSelection:
    from edgekit.fleet.rollout.selection import FleetSelection

    return FleetSelection.read(to, tuple(only or ()), class_, parallel)


def _end(code: int) -> None:
    if code:
        raise typer.Exit(code)
