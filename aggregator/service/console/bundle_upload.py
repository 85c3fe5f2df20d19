"""Compiled models that somebody brings to a service while it runs."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterable
from pathlib import Path

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import UploadFile
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from aggregator.service.administration.accounts import OPERATOR
from aggregator.service.application.guard import needs
from aggregator.service.application.requests import service_of
from aggregator.service.models.registry import Registry
from edge_sdk.errors import UsageError

CHUNK = 1 << 20


async def take_bundle(registry: Registry, pieces: AsyncIterable[bytes], who: str) -> str:
    """Writes what comes into a file of its own, checks it there, and returns the bundle's hash.

    Raises:
        UsageError: it is no bundle that this service can use; nothing is kept of it.
    """
    with tempfile.TemporaryDirectory(prefix="auscult-") as folder:
        path = Path(folder) / "sent.bundle"
        with path.open("wb") as file:
            async for piece in pieces:
                file.write(piece)
        try:
            return await run_in_threadpool(registry.add_bundle, path, who)
        except UsageError as error:
            raise UsageError(str(error).replace(str(path), "the file")) from None


async def read_pieces(upload: UploadFile) -> AsyncIterable[bytes]:
    """The content of a form's file."""
    while piece := await upload.read(CHUNK):
        yield piece


@needs(OPERATOR)
async def add_bundle_page(request: Request) -> Response:
    """POST /models."""
    form = await request.form()
    upload = form.get("bundle")
    if not isinstance(upload, UploadFile):
        raise UsageError("bundle: choose a file that auscult bundle compile has written")
    await take_bundle(service_of(request).registry, read_pieces(upload), request.state.who.name)
    return RedirectResponse("/models", 303)


PAGES = [Route("/models", add_bundle_page, methods=["POST"])]
