"""What endpoints of the console and of the API read from a request alike."""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.requests import Request

from aggregator.service.administration.accounts import APPROVER
from aggregator.service.application.service import FleetService
from aggregator.service.runs.runs import APPROVE


def service_of(request: Request) -> FleetService:
    """The service that the application belongs to."""
    found: FleetService = request.app.state.service
    return found


def awaits_of(service: FleetService) -> int:
    """Approvals that a run needs which somebody asks for now."""
    return int(service.file.two_people)


def checked_action(request: Request) -> str:
    """What somebody wants done with a run. Raises HTTPException if their role does not include it."""
    action: str = request.path_params["action"]
    if action == APPROVE and not request.state.who.may(APPROVER):
        raise HTTPException(403, f"This needs the role {APPROVER}.")
    return action
