"""Sign-in at somebody else's: the authorization code flow of OpenID Connect, with PKCE, state and nonce.

The provider knows people, their passwords and second factors, and says in a signed token who has signed in and to which
groups they belong. What each group may do here is in the settings of the service. Tokens are checked by joserfc.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import importlib.util
import json
import secrets
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from aggregator.service.administration.accounts import ROLES, SignInError
from edge_sdk.errors import UsageError
from edge_sdk.nodes.daemon.device_file import existing
from edge_sdk.tools.credentials.no_redirects import NoRedirects
from edge_sdk.wire.addresses import is_this_machine

ALGORITHMS = ["RS256", "PS256", "ES256", "ES384", "EdDSA"]
"""With which a provider may sign: with its private key, never with the secret that we know too."""
BACK = "/sign-in/provider/back"
"""Path of this console to which a provider sends the browser back."""
BEGUN_FOR = 600.0  # seconds for which a sign-in may take
MOST_SPENT = 10_000
"""Sign-ins that are known to be over; of one before them, the provider knows that its code is spent."""
TIMEOUT, LARGEST = 10.0, 2**20  # seconds and bytes of an answer of the provider
LEEWAY = 60  # seconds by which its clock may be another
LONGEST_NAME = 64
OPENER = urllib.request.build_opener(NoRedirects)
"""What the provider does not answer itself is not asked elsewhere: the client's secret would go along."""


@dataclass(frozen=True, kw_only=True)
class SingleSignOn:
    """The provider of a service: the [sign_on] table of its settings.

    Attributes:
        issuer: its address, as its own tokens say it.
        client: id under which it knows this console.
        secret: file with the client's secret.
        console: address of this console as browsers see it; the provider must send them back to its BACK.
        roles: group -> role of its members here; who is in none of them is not let in.
        groups: claim that has somebody's groups.
        user: claim that has somebody's name.
        scopes: what is asked of the provider.
    """

    issuer: str
    client: str
    secret: Path
    console: str
    roles: dict[str, str]
    groups: str = "groups"
    user: str = "preferred_username"
    scopes: tuple[str, ...] = ("openid", "profile")

    def __post_init__(self) -> None:
        existing(self.secret, "sign_on.secret")
        for key in ("issuer", "console"):
            if not is_safe(value := getattr(self, key)):
                raise UsageError(f"sign_on.{key} = {value!r}: expected https://..., or http:// on this machine")
        for group, role in self.roles.items():
            if role not in ROLES:
                raise UsageError(f"sign_on.roles.{group} = {role!r}, expected one of {', '.join(ROLES)}")
        if "openid" not in self.scopes:
            raise UsageError(f"sign_on.scopes = {list(self.scopes)}: openid has to be among them")

    @property
    def back(self) -> str:
        return self.console.rstrip("/") + BACK


class ProviderDesk:
    """Signs people in with a provider. From any thread.

    Of a sign-in that is under way nothing is kept here: all of it follows from its state and a key of this process.
    Anybody may begin as many as they like, and nobody else's is dropped for them.

    Args:
        know: who somebody is here, by what the provider calls them for ever (its issuer and `sub`) and by their name.

    Raises:
        UsageError: joserfc is not installed.

    Attributes:
        spent: state that a browser has brought back -> time.monotonic() from which on it would be too late.
    """

    def __init__(self, settings: SingleSignOn, know: Callable[[str, str], str] = lambda subject, name: name):
        if importlib.util.find_spec("joserfc") is None:
            raise UsageError("sign_on: joserfc is missing here: pip install 'auscult[oidc]'")
        self.settings, self.know = settings, know
        self.lock, self.key = threading.Lock(), secrets.token_bytes(32)
        self.spent: dict[str, float] = {}

    def begin(self) -> tuple[str, str]:
        """Begin a sign-in.

        Returns:
            Its state, which the browser keeps, and the address at the provider to which it goes.

        Raises:
            SignInError: the provider does not answer.
        """
        s, state = self.settings, self.make_state()
        digest = hashlib.sha256(self.derive("verifier", state).encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        asked = {"response_type": "code", "client_id": s.client, "redirect_uri": s.back, "scope": " ".join(s.scopes)}
        asked |= {"state": state, "nonce": self.derive("nonce", state)}
        asked |= {"code_challenge": challenge, "code_challenge_method": "S256"}
        address = find_endpoint(self.discover(), "authorization_endpoint")
        return state, f"{address}{'&' if '?' in address else '?'}{urlencode(asked)}"

    def finish(self, state: str, kept: str, code: str) -> tuple[str, str]:
        """End a sign-in.

        Args:
            state, code: as the browser has brought them back. kept: the state that this browser has kept.

        Returns:
            Name and role of who has signed in.

        Raises:
            SignInError: it was not begun in this browser, or the provider's word is not good, or gives no role here.
        """
        if not (secrets.compare_digest(state.encode(), kept.encode()) and self.spend(state)):
            raise SignInError("this sign-in was not begun in this browser, or too long ago: begin again")
        claims = self.read_token(self.fetch_token(code, self.derive("verifier", state)), self.derive("nonce", state))
        name, role = self.find_name(claims), self.find_role(claims)
        return self.know(f"{self.settings.issuer} {claims['sub']}", name), role

    def make_state(self) -> str:
        """What stands for a sign-in that begins now: drawn characters, the time until which it may last, our seal."""
        told = f"{secrets.token_urlsafe(24)}.{int(time.monotonic() + BEGUN_FOR)}"
        return f"{told}.{self.derive('state', told)}"

    def derive(self, what: str, state: str) -> str:
        """A secret of a sign-in, which nobody knows who has not this process's key: 43 characters."""
        found = hmac.digest(self.key, f"{what} {state}".encode(), "sha256")
        return base64.urlsafe_b64encode(found).rstrip(b"=").decode()

    def spend(self, state: str) -> bool:
        """True for a sign-in that has begun here, is not too old, and is ended for the first time."""
        told, _, seal = state.rpartition(".")
        if not secrets.compare_digest(seal.encode(), self.derive("state", told).encode()):
            return False
        until, now = float(told.rpartition(".")[2]), time.monotonic()
        with self.lock:
            if until < now or state in self.spent:
                return False
            self.spent = {k: late for k, late in self.spent.items() if late >= now}
            while len(self.spent) >= MOST_SPENT:
                del self.spent[next(iter(self.spent))]
            self.spent[state] = until
        return True

    def discover(self) -> dict[str, Any]:
        """What the provider says of itself."""
        issuer = self.settings.issuer.rstrip("/")
        found = fetch(f"{issuer}/.well-known/openid-configuration")
        if str(found.get("issuer", "")).rstrip("/") != issuer:
            raise SignInError("the provider calls itself otherwise than the settings do")
        return found

    def fetch_token(self, code: str, verifier: str) -> str:
        """The signed word of the provider, for a code that is good once."""
        s = self.settings
        asked = {"grant_type": "authorization_code", "code": code, "redirect_uri": s.back, "code_verifier": verifier}
        pair = f"{quote(s.client, safe='')}:{quote(s.secret.read_text().strip(), safe='')}"
        heads = {"authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}
        found = fetch(find_endpoint(self.discover(), "token_endpoint"), urlencode(asked).encode(), heads)
        return str(found.get("id_token", ""))

    def read_token(self, token: str, nonce: str) -> Mapping[str, Any]:
        """What a token says, after everything about it was checked."""
        from joserfc import jwt  # of the extra `oidc`
        from joserfc.errors import JoseError
        from joserfc.jwk import KeySet

        s, told = self.settings, self.discover()
        wanted = {"iss": told["issuer"], "aud": s.client, "nonce": nonce}
        rules: Any = {key: {"essential": True, "value": value} for key, value in wanted.items()}
        rules |= {"exp": {"essential": True}, "iat": {"essential": True}}
        try:
            known: Any = fetch(find_endpoint(told, "jwks_uri"))
            claims: dict[str, Any] = jwt.decode(token, KeySet.import_key_set(known), algorithms=ALGORITHMS).claims
            jwt.JWTClaimsRegistry(leeway=LEEWAY, **rules).validate(claims)
        except (JoseError, ValueError, KeyError, TypeError) as error:
            raise SignInError(f"the provider's word is not good: {type(error).__name__}") from None
        if claims.get("azp", s.client) != s.client:
            raise SignInError("the provider's word is for somebody else")
        return claims

    def find_name(self, claims: Mapping[str, Any]) -> str:
        """Name of somebody as it stands in the audit log: nobody can have it who signs in with a password here."""
        if not isinstance(claims.get("sub"), str):
            raise SignInError("the provider's claim sub is no name: expected what it calls somebody for ever")
        found = claims.get(self.settings.user) or claims["sub"]
        host = urlsplit(self.settings.issuer).hostname
        name = f"{found} ({host})"
        if not isinstance(found, str) or not name.isprintable() or len(name) > LONGEST_NAME:
            raise SignInError(f"the provider's claim {self.settings.user} is no name: expected at most a line of text")
        return name

    def find_role(self, claims: Mapping[str, Any]) -> str:
        """The highest role that somebody's groups have."""
        groups = claims.get(self.settings.groups, [])
        told = [groups] if isinstance(groups, str) else groups if isinstance(groups, list) else []
        found = [
            self.settings.roles[group] for group in told if isinstance(group, str) and group in self.settings.roles
        ]
        if not found:
            raise SignInError("none of your groups at the provider has a role here")
        return max(found, key=ROLES.index)


def is_safe(address: str) -> bool:
    """True for an address with TLS, or one of this machine: secrets and keys travel by no other."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return False
    return bool(parts.hostname) and (
        parts.scheme == "https" or (parts.scheme == "http" and is_this_machine(parts.hostname or ""))
    )


def find_endpoint(told: Mapping[str, Any], key: str) -> str:
    """An address of the provider, as it says it itself. Raises SignInError for one that nothing is sent to."""
    found = told.get(key)
    if not isinstance(found, str) or not is_safe(found):
        raise SignInError(f"the provider's {key} is {str(found)[:80]!r}: expected https://...")
    return found


def fetch(address: str, body: bytes | None = None, heads: Mapping[str, str] | None = None) -> dict[str, Any]:
    """An object from the provider. Raises SignInError if there is none."""
    request = urllib.request.Request(address, body, {"accept": "application/json", **(heads or {})})
    try:
        with OPENER.open(request, timeout=TIMEOUT) as answer:
            found = json.loads(answer.read(LARGEST))
    except urllib.error.HTTPError as error:
        error.close()
        raise SignInError(f"the provider refuses: {error.code}") from None
    except (OSError, ValueError, RecursionError, http.client.HTTPException) as error:
        raise SignInError(f"the provider does not answer: {type(error).__name__}") from None
    if not isinstance(found, dict):
        raise SignInError("the provider answers with something else than was asked for")
    return found
