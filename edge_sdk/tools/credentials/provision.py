"""Certificates, access list and configuration for one broker, made with the openssl command.

    authority/      the authority's key and its list of certificates: for nobody else, best on another machine
    broker/         what mosquitto reads
    nodes/NAME/     what the node called NAME is given: ca.crt, NAME.crt, NAME.key; trusted.pem, with which it knows its
                    operator's runs from others; and the aggregator signing.key, with which it signs them
    masks/          public keys for secret sums, see mask_papers.py
    site.json       what was said in earlier calls

A certificate names its holder (CN); the broker takes that name as user and as client id, and its access list lets each
node publish and read only its own topics. A key or certificate that is there already is kept. Who is left out of a
later call is locked out until it is named again, with what it has; `revoke` is for good.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from edge_sdk.atomic import write_text
from edge_sdk.errors import UsageError
from edge_sdk.tools.credentials.authority import Authority, run_openssl
from edge_sdk.tools.credentials.broker_files import hand_over, write_access, write_configuration
from edge_sdk.tools.credentials.mask_papers import write_mask_keys
from edge_sdk.tools.credentials.site import Site, load_site, save_site

BROKER = "broker"
SIGNING_KEY, TRUSTED_KEY = "signing.key", "trusted.pem"
RELOAD = "tell the broker: systemctl reload mosquitto, or kill -HUP its process"


@dataclass(frozen=True)
class Places:
    """Folders of one site's directory."""

    directory: Path

    @property
    def authority(self) -> Path:
        return self.directory / "authority"

    @property
    def broker(self) -> Path:
        return self.directory / "broker"

    @property
    def site(self) -> Path:
        return self.directory / "site.json"

    def node(self, name: str) -> Path:
        return self.directory / "nodes" / name


class Provisioner:
    """Makes and changes what lies in the directory of one site.

    Args:
        directory: where the files go; mosquitto.conf names it, so it is where the broker reads them.
        passphrase: says the passphrase of the authority's key; its argument is true where one is chosen now.

    Raises:
        UsageError: the directory is that of an older version.
    """

    def __init__(self, directory: Path, passphrase: Callable[[bool], str]):
        self.places, self.passphrase = Places(directory.resolve()), passphrase
        self.authority = Authority(self.places.authority, lambda: passphrase(False))
        if (directory / "ca.key").exists():
            raise UsageError(
                f"{directory} was made by an older version, with the authority's key beside what is handed out: take "
                "another directory, and give each node and the broker what is made there"
            )

    @property
    def saved(self) -> Site | None:
        return load_site(self.places.site)

    def apply(self, site: Site, plain: bool = False, aggregator_key: Path | None = None) -> list[str]:
        """Make what is not there yet, for the broker and for all nodes of a site; lock out who was there before.

        Args:
            plain: the key of an authority that is made now is not encrypted.
            aggregator_key: file with the public key of an aggregator that has another site, for secret sums.

        Returns:
            What a person should know, in sentences.

        Raises:
            UsageError: a name is an enrolled node's, or openssl fails.
        """
        before = self.saved
        self.check_new_names(site, before)
        secret = None if plain or self.authority.exists else self.passphrase(True)
        if plain and self.authority.exists and self.authority.is_encrypted:
            raise UsageError("--no-passphrase: the authority's key has one already")
        self.make_folders()
        if not self.authority.exists:
            self.authority.make(site.aggregator or str(site.hospital), secret)
        moved = before is not None and before.host != site.host
        if moved or not (self.places.broker / "broker.crt").exists():
            self.give_broker(site)
        told = self.lock_out(site, before)
        for name in site.nodes:
            if not (self.places.node(name) / f"{name}.crt").exists() or not self.has_certificate(name):
                self.give_node(name)
        self.give_signing_key(site)
        write_mask_keys(self.places.directory, site, aggregator_key)
        save_site(self.places.site, site)
        said = [f"the broker's certificate is a new one, for {site.host}"] if moved else []
        return told + said + self.write_broker(site)

    def check_new_names(self, site: Site, before: Site | None) -> None:
        """Raises UsageError for a name under which somebody has enrolled with the service: one line in the access list
        would let both in. Who is suspended or waits for the broker is in no list; the certificate tells of it."""
        known = () if before is None else before.nodes
        enrolled = {pair.rpartition("/")[2] for pair in site.enrolled}
        enrolled |= set() if before is None else {pair.rpartition("/")[2] for pair in before.enrolled}
        enrolled |= {one.name for one in self.authority.list_issued() if one.is_good and not self.was_made(one.name)}
        others = {name.lower(): name for name in enrolled}
        for name in site.nodes:
            if name not in known and (other := others.get(name.lower())):
                raise UsageError(
                    f"{name!r}: {other} has enrolled with the service under that name; take another one, or let "
                    f"`auscult fleet remove {other}` set it free"
                )

    def was_made(self, name: str) -> bool:
        """Was a certificate of this name made by a call, which may have been killed in between?"""
        return self.places.node(name).exists()

    def has_certificate(self, name: str) -> bool:
        """Has a node one that was not taken back?"""
        return any(one.name == name and not one.revoked for one in self.authority.list_issued())

    def lock_out(self, site: Site, before: Site | None) -> list[str]:
        """Hold the certificates of who was left out, and release those of who was named again; says so."""
        held = {one.name for one in self.authority.list_issued() if one.held}
        back = [name for name in site.nodes if name in held and self.authority.release(name)]
        out = [] if before is None else [name for name in before.nodes if name not in site.nodes]
        for name in out:
            self.authority.hold(name)
        if back or out or self.authority.due.exists():
            self.authority.write_list(self.places.broker / "crl.pem")
        told = [f"{', '.join(back)}: may connect again, with what is in nodes/NAME; {RELOAD}"] if back else []
        return told + ([self.say_left_out(out)] if out else [])

    def say_left_out(self, names: list[str]) -> str:
        again = f"auscult provision {self.places.directory} --revoke {' '.join(names)}"
        return (
            f"{', '.join(names)}: left out of this call, and locked out; {RELOAD}. Who is named in a later call may "
            f"connect again with what it has; to end it for good: {again}"
        )

    def make_folders(self) -> None:
        """Make the folders. Others may pass through the outermost one, since the broker is another user."""
        self.places.directory.mkdir(parents=True, exist_ok=True)
        for folder in (self.places.broker, self.places.directory / "nodes"):
            folder.mkdir(exist_ok=True)
            folder.chmod(0o700)

    def give_broker(self, site: Site) -> None:
        self.authority.issue(site.host, "server", self.places.broker, BROKER, site.host)

    def give_node(self, name: str) -> None:
        folder = self.places.node(name)
        self.authority.issue(name, "client", folder, name)
        write_text(folder / "ca.crt", (self.places.authority / "ca.crt").read_text())
        folder.chmod(0o700)

    def give_signing_key(self, site: Site) -> None:
        """Make the operator's key, for the aggregator alone, and give its public half to everybody."""
        if site.aggregator is None:
            return
        folder = self.places.node(site.aggregator)
        if not (folder / SIGNING_KEY).exists():
            run_openssl(folder, "genpkey", "-algorithm", "ED25519", "-out", SIGNING_KEY)
        public = run_openssl(folder, "pkey", "-in", SIGNING_KEY, "-pubout")
        for name in site.nodes:
            write_text(self.places.node(name) / TRUSTED_KEY, public)

    def write_broker(self, site: Site) -> list[str]:
        """Write what the broker reads, but its certificate; returns what a person should know."""
        folder = self.places.broker
        write_text(folder / "ca.crt", (self.places.authority / "ca.crt").read_text())
        if not (folder / "crl.pem").exists():
            self.authority.write_list(folder / "crl.pem")
        write_access(folder / "acl", site)
        write_configuration(folder, site)
        left = hand_over(folder)
        plain = (
            []
            if self.authority.is_encrypted
            else ["the authority's key is not encrypted: whoever can read it can make certificates for anybody"]
        )
        return plain + ([left] if left else [])

    def admit(self, site: Site) -> None:
        """Let those come to the broker whom `site` names as enrolled, and nobody whose certificate was taken back."""
        save_site(self.places.site, site)
        self.authority.write_list(self.places.broker / "crl.pem")
        self.write_broker(site)

    def revoke(self, names: Iterable[str]) -> list[str]:
        """Take back all certificates of some nodes. A child leaves the site, a parent is given a new one."""
        site, names = self.known(), list(names)
        if BROKER in names:
            raise UsageError(
                "revoke broker: nodes keep no list of what was revoked; take another directory, and give all new ones"
            )
        after = site
        held = {one.name for one in self.authority.list_issued() if one.held}
        for name in names:
            after = after if name in held - set(site.nodes) else after.without(name)
        for name in names:
            self.authority.revoke(name)
            shutil.rmtree(self.places.node(name), ignore_errors=True)
        self.authority.write_list(self.places.broker / "crl.pem")
        save_site(self.places.site, after)
        again = [name for name in names if site.is_parent(name)]
        for name in again:
            self.give_node(name)
        self.give_signing_key(after)
        write_mask_keys(self.places.directory, after, None)
        told = [f"{', '.join(names)}: may not connect any more with what they have; {RELOAD}"]
        new = [f"{', '.join(again)}: new certificates, since the site needs them"] if again else []
        if site.aggregator in again:
            new.append(f"{site.aggregator} signs with a new key: give each node its new {TRUSTED_KEY}")
        return told + new + self.write_broker(after)

    def renew(self, names: Iterable[str]) -> list[str]:
        """Make new keys and certificates, with all their days before them. Old ones stay good until they end."""
        site, names = self.known(), list(names)
        for name in names:
            if name not in (*site.nodes, BROKER):
                raise UsageError(f"renew {name!r}: expected {BROKER} or a node of this site: {', '.join(site.nodes)}")
        for name in names:
            self.give_broker(site) if name == BROKER else self.give_node(name)
        told = [f"{', '.join(names)}: new certificates; the old ones are good until they end."]
        if nodes := [name for name in names if name != BROKER]:
            again = "and then name it again: that takes back all of its certificates"
            told.append(f"If a key was stolen, --revoke {' '.join(nodes)}, {again}")
        return told + ([RELOAD] if BROKER in names else []) + self.write_broker(site)

    def known(self) -> Site:
        """The site of this directory; UsageError where there is none."""
        site = self.saved
        if site is None:
            raise UsageError(f"{self.places.directory} is no site yet: name its --hospital or --aggregator, and --host")
        return site


def provision(directory: Path, site: Site, passphrase: str | None = None) -> list[str]:
    """Make what is not there yet for a site. `passphrase`: of the authority's key; None: it has none.

    Returns:
        What a person should know, in sentences.

    Raises:
        UsageError: there is no openssl, or something cannot be used.
    """
    return Provisioner(directory, lambda new: passphrase or "").apply(site, plain=passphrase is None)
