"""The commands `edgekit fleet …`: parse their options and call `edgekit.fleet.rollout`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgekit.cli.exit_codes import errors_as_exit_codes
from edgekit.cli.help import hide_switch_types

if TYPE_CHECKING:
    from edgekit.fleet.rollout.selection import FleetSelection

RETAINED = "the devices keep their bundles"
Bundle = Annotated[Path, typer.Argument(metavar="BUNDLE", help="A NAME-TARGET-VERSION.edge.zip.")]
To = Annotated[Path, typer.Option(metavar="HOSTS", help="The inventory, hosts.yaml.")]
Only = Annotated[list[str] | None, typer.Option(metavar="NAME", help="Only this device. Repeat for more.")]
Class = Annotated[str | None, typer.Option("--class", metavar="NAME", help="Only devices of this class.")]
Parallel = Annotated[int, typer.Option(min=1, max=1000, help="Number of devices to work on at once.")]
Wheels = Annotated[
    Path | None, typer.Option(metavar="DIR", help="Folder with wheels for devices that lack numpy or an interpreter.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object for each device.")]

app = typer.Typer(no_args_is_help=True, help="Push bundles to many devices over SSH, and inspect them.")


@app.command()
def push(
    bundle: Bundle,
    to: To,
    only: Only = None,
    class_: Class = None,
    canary: Annotated[int, typer.Option(min=0, help="Number of devices of each class in the first wave.")] = 1,
    share: Annotated[str, typer.Option(metavar="SHARE", help="Share of each class in the second wave.")] = "10%",
    parallel: Parallel = 32,
    confirm: Annotated[bool, typer.Option("--confirm", help="Confirm the bundle from this machine at once.")] = False,
    wait: Annotated[
        float, typer.Option(min=0, help="Seconds to wait for a device to confirm; 0: its self-test is enough.")
    ] = 180.0,
    wheels: Wheels = None,
    trust: Annotated[Path | None, typer.Option(metavar="DIR", help="Send this signed policy, too.")] = None,
    latency_ms: Annotated[
        float | None,
        typer.Option(min=0, help="Largest p50 allowed on a device, 0: any; by default the bundle's budget."),
    ] = None,
    send_only: Annotated[
        bool, typer.Option("--send-only", help="Send the bundle only; a later push installs it.")
    ] = False,
    json_: Json = False,
) -> None:
    """Send a bundle to all devices, then install it in waves, and stop at the first failure.

    After an interruption, run the same command again to continue.

    Exit code of the worst device: 2: hosts.yaml is wrong; 4: the bundle cannot be used; 5: the device cannot run it; 6:
    a command died on the device; 7: the device is unreachable or full; 8: something is not trusted.
    """
    with errors_as_exit_codes(RETAINED):
        from edgekit.fleet.rollout import push as command

        chosen = _selection(to, only, class_, parallel)
        options = (canary, share, confirm, wait, wheels, trust, latency_ms, send_only)
        request = command.PushRequest(bundle, chosen, *options)
        _exit_with(command.run(request, json_))


@app.command()
def status(
    to: To,
    only: Only = None,
    class_: Class = None,
    parallel: Parallel = 32,
    json_: Json = False,
    all_: Annotated[
        bool,
        typer.Option(
            "--all",
            help="List every device; by default, if there are more than 20, only those that need attention.",
        ),
    ] = False,
) -> None:
    """Show the current release of each device and, if its newest release failed, why."""
    with errors_as_exit_codes(RETAINED):
        from edgekit.fleet.rollout import status as command

        _exit_with(command.run(_selection(to, only, class_, parallel), json_, all_))


@app.command()
def confirm(
    bundle: Bundle, to: To, only: Only = None, class_: Class = None, parallel: Parallel = 32, json_: Json = False
) -> None:
    """Confirm a bundle on the devices where it is on probation."""
    with errors_as_exit_codes(RETAINED):
        from edgekit.fleet.rollout import change

        _exit_with(change.confirm(bundle, _selection(to, only, class_, parallel), json_))


@app.command()
def rollback(
    bundle: Bundle,
    to: To,
    why: Annotated[
        str, typer.Option(metavar="TEXT", help="Reason, recorded with the release.")
    ] = "rolled back from the workstation",
    only: Only = None,
    class_: Class = None,
    parallel: Parallel = 32,
    json_: Json = False,
) -> None:
    """Roll a bundle back on the devices where it is current: they return to the release before it."""
    with errors_as_exit_codes(RETAINED):
        from edgekit.fleet.rollout import change

        _exit_with(change.roll_back(bundle, _selection(to, only, class_, parallel), why, json_))


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
    with errors_as_exit_codes(RETAINED):
        from edgekit.fleet.rollout import bench as command

        _exit_with(command.run(bundle, _selection(to, only, class_, parallel), calls, wheels, json_))


@app.command()
def doctor(
    bundle: Bundle, to: To, only: Only = None, class_: Class = None, parallel: Parallel = 32, json_: Json = False
) -> None:
    """Report what would keep a bundle from running on each device."""
    with errors_as_exit_codes(RETAINED):
        from edgekit.fleet.rollout import doctor as command

        _exit_with(command.run(bundle, _selection(to, only, class_, parallel), json_))


hide_switch_types(app)


def _selection(to: Path, only: list[str] | None, class_: str | None, parallel: int) -> FleetSelection:
    from edgekit.fleet.rollout.selection import FleetSelection

    return FleetSelection.read(to, tuple(only or ()), class_, parallel)


def _exit_with(code: int) -> None:
    if code:
        raise typer.Exit(code)
