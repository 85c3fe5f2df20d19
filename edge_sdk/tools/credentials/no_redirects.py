"""An opener of addresses that stays where it was sent: who answers with another address has not answered."""

from __future__ import annotations

import urllib.request
from typing import Any


class NoRedirects(urllib.request.HTTPRedirectHandler):
    """A handler that follows no redirect: a token or a secret would go along, perhaps as plain text."""

    def redirect_request(self, *_: Any) -> None:
        return None
