"""The folder that a broker reads: mosquitto's configuration, its access list, and a script that installs both.

mosquitto starts with it as it is: started by a person it stays that person and reads the person's files; started by
root it becomes the user `mosquitto`, to whom the files are given if root has written them.
"""

from __future__ import annotations

import os
import pwd
import shutil
import stat
from pathlib import Path

from edge_sdk.atomic import write_text
from edge_sdk.tools.credentials.site import Site
from edge_sdk.wire.mqtt import HEADROOM, LARGEST

USER = "mosquitto"
INSTALLED = "/etc/mosquitto/auscult"
LARGEST_PACKET = 2 * LARGEST + HEADROOM
"""Bytes. A chunk has at most LARGEST; a hello carries a run's description of at most 1 MB more."""
QUEUED, QUEUED_BYTES = 10_000, 2**28
"""Messages, and bytes of them, that wait for one client: as much as a node lets one peer have waiting."""
SPARE = 50
"""Connections beyond two for each node: one that is lost may linger while its node comes again, and mosquitto reads
this limit only when it starts, so devices that are added later need room too."""

MOSQUITTO = """# The broker of {whose}, written by `auscult provision`.
per_listener_settings false
allow_anonymous false
acl_file {folder}/acl
set_tcp_nodelay true
persistence false
retain_available false

# What one client may cost. mosquitto has no limit on the rate of messages: what a node takes in is limited there.
max_packet_size {packet}
max_inflight_messages 100
max_queued_messages {queued}
max_queued_bytes {queued_bytes}

listener {port}
max_connections {connections}
cafile {folder}/ca.crt
certfile {folder}/broker.crt
keyfile {folder}/broker.key
crlfile {folder}/crl.pem
require_certificate true
use_identity_as_username true
use_username_as_clientid true
"""

PARENT = """
user {name}
topic read auscult/v1/{name}/+/up/+
topic write auscult/v1/{name}/+/down/+
"""
CONSOLE = """
user {name}-console
topic read auscult/v1/{name}/+/up/f
topic write auscult/v1/{name}/+/down/r
"""
LANE = """
user {lane}
topic read auscult/v1/{name}/+/up/+
topic write auscult/v1/{name}/+/down/+
"""
"""A further certificate of the aggregator, for a run that goes on beside another one."""
CHILD = """
user {name}
topic write auscult/v1/{parent}/{name}/up/+
topic read auscult/v1/{parent}/{name}/down/+
topic read auscult/v1/{parent}/all/down/+
"""

INSTALL = """#!/bin/sh
# Installs this folder for the mosquitto service of Debian 12 or Raspberry Pi OS. Run as root: sh install.sh [TARGET]
set -eu
here=$(cd "$(dirname "$0")" && pwd)
to=${{1:-{installed}}}
include=${{2:-/etc/mosquitto/conf.d}}
install -d -o {user} -g {user} -m 0700 "$to"
for file in ca.crt broker.crt broker.key crl.pem acl; do
    install -o {user} -g {user} -m 0600 "$here/$file" "$to/$file"
done
# Debian's own mosquitto.conf has said `persistence` already; nothing of ours is kept there
sed -e "s|{folder}/|$to/|" -e "/^persistence /d" "$here/mosquitto.conf" > "$include/auscult.conf"
echo "installed; now: systemctl restart mosquitto (after a later call of provision: install.sh, then reload)"
"""


def write_access(path: Path, site: Site) -> None:
    """Write who may do what. Each node is named: one that is left out may do nothing, even while it is connected."""
    parents = {parent for parent, _ in site.list_pairs()} | {p for p in (site.hospital, site.aggregator) if p}
    above = {site.aggregator, f"{site.aggregator}-console"}
    hospitals = {name for parent, name in site.list_pairs() if parent == site.aggregator and name not in above}
    parents |= {name for name in hospitals if not name.startswith(f"{site.aggregator}-run-")}  # before their devices
    sections = [PARENT.format(name=name) for name in sorted(parents)]
    sections += [CONSOLE.format(name=site.aggregator)] if site.aggregator else []
    lanes = [name for name in site.hospitals if name.startswith(f"{site.aggregator}-run-")]  # by hand, never enrolled
    sections += [LANE.format(lane=lane, name=site.aggregator) for lane in sorted(lanes)]
    sections += [CHILD.format(parent=parent, name=name) for parent, name in site.list_pairs()]
    write_text(path, "# Who may do what: a user is the name in the certificate.\n" + "".join(sections) + DOCTOR)


DOCTOR = """
# a line for `auscult doctor` to measure
pattern readwrite auscult/v1/doctor/%u
"""


def write_configuration(folder: Path, site: Site) -> None:
    """Write mosquitto.conf and install.sh."""
    whose = " and ".join(name for name in (site.aggregator, site.hospital) if name)
    limits = {"packet": LARGEST_PACKET, "queued": QUEUED, "queued_bytes": QUEUED_BYTES}
    connections = 2 * (len(site.nodes) + len(site.enrolled)) + SPARE
    text = MOSQUITTO.format(whose=whose, folder=folder, port=site.port, connections=connections, **limits)
    write_text(folder / "mosquitto.conf", text)
    write_text(folder / "install.sh", INSTALL.format(folder=folder, user=USER, installed=INSTALLED))


def hand_over(folder: Path) -> str:
    """Give the files to whom mosquitto will be, and say what is left to do for that; "" if nothing is."""
    for path in folder.iterdir():
        path.chmod(0o600)
    folder.chmod(0o700)
    if os.geteuid() != 0:
        return ""
    try:
        user = pwd.getpwnam(USER)
    except KeyError:
        return f"there is no user {USER} on this machine: copy {folder} to the broker's, and run its install.sh there"
    for path in (folder, *folder.iterdir()):
        shutil.chown(path, user.pw_uid, user.pw_gid)
    closed = [path for path in folder.parents if not path.stat().st_mode & stat.S_IXOTH]
    if closed:
        return f"{closed[-1]} is closed to the user {USER}: run {folder / 'install.sh'}, which copies what it needs"
    return ""
