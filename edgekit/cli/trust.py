"""The commands `edgekit sign`, `edgekit verify` and `edgekit trust …`, which call `edgekit.fleet.signing`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgekit.cli.exit_codes import errors_as_exit_codes
from edgekit.cli.help import hide_switch_types

if TYPE_CHECKING:
    from edgekit.device.trust.policy import Policy

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="Folder of the policy; devices get a copy.")]
Root = Annotated[
    Path,
    typer.Option(metavar="KEY", help="The root's private key, or its .pub if an SSH agent holds the private one."),
]
Days = Annotated[int, typer.Option(min=1, max=36_500, help="Days until the policy expires.")]
Bundle = Annotated[Path, typer.Argument(metavar="BUNDLE", help="A NAME-TARGET-VERSION.edge.zip.")]
Trust = Annotated[Path, typer.Option(metavar="DIR", help="Folder with the signed policy.")]

app = typer.Typer(no_args_is_help=True, help="Make and change the signed policy that says who may sign bundles.")


def sign(
    bundle: Bundle,
    key: Annotated[Path, typer.Option(metavar="KEY", help="Private key, or its .pub if an SSH agent holds it.")],
    trust: Trust,
    counter: Annotated[
        int | None,
        typer.Option(
            min=0, max=2**53, help="Number that must rise with each release; by default the seconds since 1970."
        ),
    ] = None,
    days: Annotated[int, typer.Option(min=1, max=36_500, help="Days until the signature expires.")] = 365,
    cosign: Annotated[bool, typer.Option("--cosign", help="Add a signature to the existing statement.")] = False,
    oms: Annotated[
        Path | None, typer.Option(metavar="KEY.pem", help="Also sign by OpenSSF Model Signing, with this private key.")
    ] = None,
) -> None:
    """Sign a bundle: write an in-toto statement and its SSH signature beside it.

    Exit codes: 4: no bundle; 8: no device with this policy would trust the signature.
    """
    with errors_as_exit_codes():
        from edgekit.fleet.signing import oms as model_signing
        from edgekit.fleet.signing import release

        if oms is not None:
            model_signing.check_ready(oms)  # before anything is written
        for line in release.sign(release.SignRequest(bundle, key, trust, counter, days, cosign)):
            print(line)
        if oms is not None:
            print(model_signing.sign(bundle, oms))


def verify(
    bundle: Bundle,
    trust: Trust,
    oms: Annotated[
        Path | None, typer.Option(metavar="KEY.pem", help="Also verify the OpenSSF signature, with this public key.")
    ] = None,
) -> None:
    """Verify a signed bundle as a device does, and the SBOM beside it.

    Exit codes: 4: no bundle; 8: the bundle is not trusted.
    """
    with errors_as_exit_codes():
        from edgekit.fleet.signing import oms as model_signing
        from edgekit.fleet.signing import release

        for line in release.verify(bundle, trust):
            print(line)
        if oms is not None:
            print(model_signing.verify(bundle, oms))


@app.command()
def init(
    folder: Folder,
    root: Root,
    threshold: Annotated[int, typer.Option(min=1, max=16, help="Number of signers that must sign a bundle.")] = 1,
    days: Days = 365,
) -> None:
    """Create a policy that trusts nobody yet, and sign it with the root key."""
    with errors_as_exit_codes():
        from edgekit.fleet.signing import policy_change

        _print_policy(folder, policy_change.init(folder, root, threshold, days))


@app.command()
def add(
    folder: Folder,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the signer.")],
    key: Annotated[Path, typer.Argument(metavar="KEY.pub", help="Public key of the signer.")],
    root: Root,
    until: Annotated[
        str | None,
        typer.Option(metavar="DATE", help="Day on which the key expires, such as 2027-01-31; by default never."),
    ] = None,
) -> None:
    """Allow one more signer to sign bundles."""
    with errors_as_exit_codes():
        from edgekit.fleet.signing import options, policy_change

        _print_policy(folder, policy_change.add(folder, root, name, key, options.parse_date(until)))


@app.command()
def revoke(
    folder: Folder,
    root: Root,
    name: Annotated[list[str] | None, typer.Argument(metavar="NAME", help="Signers whose keys are revoked.")] = None,
    below: Annotated[
        list[str] | None,
        typer.Option(metavar="BUNDLE=COUNTER", help="Refuse bundles of this name with a lower counter."),
    ] = None,
) -> None:
    """Revoke the keys of signers, or releases of a bundle."""
    with errors_as_exit_codes():
        from edgekit.fleet.signing import options, policy_change

        _print_policy(folder, policy_change.revoke(folder, root, *options.parse_revocations(name or [], below or [])))


@app.command()
def rotate(
    folder: Folder,
    root: Root,
    key: Annotated[
        list[str] | None, typer.Argument(metavar="NAME=KEY.pub", help="New keys; the old ones are revoked.")
    ] = None,
    threshold: Annotated[
        int | None, typer.Option(min=1, max=16, help="Number of signers that must sign; by default as before.")
    ] = None,
    days: Days = 365,
) -> None:
    """Begin a new epoch, in which counters restart and all bundles have to be signed again."""
    with errors_as_exit_codes():
        from edgekit.fleet.signing import options, policy_change

        _print_policy(folder, policy_change.rotate(folder, root, options.parse_keys(key or []), threshold, days))


@app.command()
def renew(folder: Folder, root: Root, days: Days = 365) -> None:
    """Extend the time for which the policy is valid. Nothing else changes."""
    with errors_as_exit_codes():
        from edgekit.fleet.signing import policy_change

        _print_policy(folder, policy_change.renew(folder, root, days))


hide_switch_types(app)


def _print_policy(folder: Path, policy: Policy) -> None:
    from edgekit.device.trust.signed_json import format_time

    names = ", ".join(sorted(policy.signers)) or "nobody yet"
    print(
        f"policy      {folder}, version {policy.version}, epoch {policy.epoch}, until {format_time(policy.expires_s)}"
    )
    print(f"signers     {names}; at least {policy.threshold} must sign")
    if len(policy.signers) < policy.threshold:
        print(f"NOTE        too few signers to trust any bundle; `edgekit trust add {folder} NAME KEY.pub` adds one")
