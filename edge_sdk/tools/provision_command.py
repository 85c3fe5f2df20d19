"""`auscult provision`: makes, lists, renews and takes back what the nodes of one broker prove themselves with."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from edge_sdk.errors import UsageError
from edge_sdk.tools.credentials.passphrase import SOURCES, VARIABLE, read_passphrase
from edge_sdk.tools.credentials.provision import Provisioner
from edge_sdk.tools.credentials.site import PORT, combine

WORDS = "make certificates for the nodes of one broker, and the matching mosquitto configuration"
DETAILS = f"""
A hospital's broker: --hospital NAME --devices ...   An aggregator's: --aggregator NAME --hospitals ...
One broker for all: --hospital NAME --devices ... --aggregator NAME
What was said in an earlier call need not be said again. But --devices and --hospitals say who is there: who is left
out of such a list is locked out until it is named again, unless --keep is said.
The passphrase of the authority's key comes from {SOURCES}.
"""


def add_provision(commands: Any, parents: Sequence[argparse.ArgumentParser]) -> None:
    command = commands.add_parser("provision", help=WORDS, description=WORDS, epilog=DETAILS, parents=parents)
    command.add_argument("directory", type=Path)
    command.add_argument("--host", help="name or address under which nodes reach the broker")
    command.add_argument("--port", type=int, help=f"on which the broker listens (default: as before, or {PORT})")
    command.add_argument("--hospital", metavar="NAME")
    command.add_argument("--devices", nargs="*", metavar="DEVICE", help="devices of the hospital")
    command.add_argument("--aggregator", metavar="NAME")
    command.add_argument("--hospitals", nargs="*", metavar="NAME", help="hospitals of the aggregator")
    command.add_argument(
        "--keep", action="store_true", help="those who are not named stay, and the named come beside them"
    )
    words = "public key of an aggregator that has a site of its own (its masks/NAME.pub), for secret sums"
    command.add_argument("--aggregator-key", type=Path, metavar="FILE", help=words)
    command.add_argument("--revoke", nargs="+", metavar="NAME", help="take back all certificates of these nodes")
    command.add_argument(
        "--renew", nargs="+", metavar="NAME", help="new keys and certificates for these nodes, or for `broker`"
    )
    command.add_argument("--list", action="store_true", help="list all certificates, and until when they are good")
    secret = command.add_mutually_exclusive_group()
    secret.add_argument("--passphrase-file", type=Path, metavar="FILE", help=f"or {VARIABLE}, or a terminal")
    secret.add_argument("--no-passphrase", action="store_true", help="leave the authority's key as plain text")
    command.set_defaults(do=do_provision)


def do_provision(options: argparse.Namespace) -> None:
    site = Provisioner(options.directory, lambda new: read_passphrase(options.passphrase_file, new))
    asked = [name for name in ("revoke", "renew", "list") if getattr(options, name)]
    given = [name for name in ("host", "port", "hospital", "devices", "aggregator", "hospitals") if says(options, name)]
    if len(asked) > 1 or (asked and given):
        raise UsageError(f"--{asked[0]} is a call of its own: leave out --{(asked[1:] + given)[0]}")
    if options.list:
        list_certificates(site)
    elif options.revoke:
        say(site.revoke(options.revoke))
    elif options.renew:
        say(site.renew(options.renew))
    else:
        make_site(site, options)


def says(options: argparse.Namespace, name: str) -> bool:
    return getattr(options, name) is not None


def say(sentences: list[str]) -> None:
    for sentence in sentences:
        print(sentence)


def make_site(site: Provisioner, options: argparse.Namespace) -> None:
    """Make what is new, then say what is where, and who was locked out."""
    names = ("host", "port", "hospital", "devices", "aggregator", "hospitals")
    wanted = combine(site.saved, options.keep, **{name: getattr(options, name) for name in names})
    say(site.apply(wanted, plain=options.no_passphrase, aggregator_key=options.aggregator_key))
    directory = site.places.directory
    print(
        f"for each node: {directory / 'nodes'}/NAME; for the broker: mosquitto -c {site.places.broker}/mosquitto.conf"
    )
    print(f"for secret sums: {directory / 'masks'}, whose devices.pub is for the aggregator")
    print(f"to install it as Debian's service: sh {site.places.broker}/install.sh, as root on the broker's machine")
    print(f"for nobody else: {site.places.authority}")


def list_certificates(site: Provisioner) -> None:
    for one in site.authority.list_issued():
        print(f"{one.name:20} {one.state:8} until {one.expires:%Y-%m-%d}  {one.serial}")
