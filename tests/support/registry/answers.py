"""Answers that several routes of the testbed's registry give."""

import json

from support.registry.faults import Answer


def refusal(status: int, code: str, message: str, **headers: str) -> Answer:
    """Return an error as the specification words it; `WWW_Authenticate=` becomes WWW-Authenticate."""
    body = json.dumps({"errors": [{"code": code, "message": message}]}).encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Answer(status, {"Content-Type": "application/json", **named}, body)


def created(location: str, digest: str) -> Answer:
    """Return 201 for something that has a digest."""
    return Answer(201, {"Location": location, "Docker-Content-Digest": digest}, b"")
