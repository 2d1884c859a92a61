"""What a client of the webhook sends, once TLS stands: requests over the wire, and the review in one."""

import asyncio
import base64
import json
from collections.abc import Callable, Iterator
from typing import Any

import h11
from gkm.api.errors import GKMError, Reason
from gkm.probes.messages import Page
from gkm_operator.admission import validator
from gkm_operator.admission.domains.reviewer import WorkloadReviewer
from gkm_operator.admission.https.session import MAX_BODY_BYTES, SPARE, BadRequest, HttpConnection
from gkm_operator.admission.review import MAX_WARNING, MAX_WARNING_LINES, ReviewInvalid, encode, parse
from support.grove.json_patch import patched
from support.operator.workloads import enrolled_set

MAX_REQUESTS = 20


class _Client:
    """A connection on which these bytes come, in pieces, and then the end."""

    def __init__(self, data: bytes, piece: int) -> None:
        self._pieces: Iterator[bytes] = iter([data[at : at + piece] for at in range(0, len(data), piece)])
        self.sent = b""

    async def receive(self) -> bytes:
        return next(self._pieces, b"")

    async def send(self, data: bytes) -> None:
        self.sent += data


def http(data: bytes) -> None:
    """The pieces in which a request comes change nothing; it is read whole, or refused in a bounded line."""
    first = _conversation(data, 1 << 16)
    if len(data) <= 4096:
        assert _conversation(data, 5) == first


def _conversation(data: bytes, piece: int) -> list[object]:
    """Return what was understood, after an answer to each request."""
    return asyncio.run(_converse(data, piece))


async def _converse(data: bytes, piece: int) -> list[object]:
    held: list[int] = []
    client = _Client(data, piece)
    messages = HttpConnection(client, _counting(held), _admit)  # type: ignore[arg-type]  # what it needs of a connection
    understood: list[object] = []
    try:
        while len(understood) < MAX_REQUESTS and await messages.wait_for_request():
            asked = await messages.read()
            assert len(asked.body) <= min(MAX_BODY_BYTES, len(data))
            assert asked.path.isascii() or "\ufffd" in asked.path
            understood.append((asked.method, asked.path, asked.take()))
            assert asked.body == b""
            await messages.write(Page(b"{}"), is_last=messages.is_last)
            if messages.is_last:
                break
    except BadRequest as error:
        assert 400 <= error.response.status < 600
        text = error.response.body.decode().strip()
        assert text.isprintable()
        assert len(text) < 200
        understood.append(error.response.status)  # which of two faults is named hangs on what had come
    except OSError:
        understood.append("gone")
    assert sum(held) <= len(data) + len(data) // SPARE
    _check_answers(client.sent)
    return understood


def _counting(held: list[int]) -> Callable[[int], bool]:
    def hold(size: int) -> bool:
        held.append(size)
        return True

    return hold


async def _admit() -> bool:
    return True


def _check_answers(sent: bytes) -> None:
    """See that each answer can be read by a client; whether it has a body hangs on what was asked."""
    for head in sent.split(b"HTTP/1.1 ")[1:]:
        reader = h11.Connection(h11.CLIENT)
        reader.send(h11.Request(method="HEAD", target="/", headers=[("Host", "x")]))
        reader.send(h11.EndOfMessage())
        reader.receive_data(b"HTTP/1.1 " + head.partition(b"\r\n\r\n")[0] + b"\r\n\r\n")
        assert isinstance(reader.next_event(), h11.Response | h11.InformationalResponse)


def review(data: bytes) -> None:
    """A review is read or refused in a line; every answer to it is one that an API server takes, and bounded."""
    try:
        request = parse(data)
    except ReviewInvalid as error:
        text = str(error)
        assert len(text) < 400
        return
    early = validator.decide_without_image(request)
    answers = [early] if early else []
    for reason in (Reason.NOT_FOUND, Reason.REGISTRY_UNAVAILABLE, Reason.NOT_ALLOWED):
        found = GKMError(reason, "x" * 300, "hint")
        answers += [validator.decide_error(request, found, mode) for mode in ("enforce", "warn")]
    for answer in answers:
        raw = encode(request.uid, answer)
        assert len(raw) < 16 << 10
        response = json.loads(raw)["response"]
        assert response["uid"] == request.uid
        assert response["allowed"] is answer.allowed
        assert answer.allowed or len(response["status"]["message"]) < 1000
        assert len(response.get("warnings", ())) <= MAX_WARNING_LINES
        assert all(len(line) <= MAX_WARNING and "\n" not in line for line in response.get("warnings", ()))


_WORKLOADS = enrolled_set()


def workload(data: bytes) -> None:
    """A review of a workload is refused in a line; or its patch fits the object, and the patched one needs no other."""
    for reviewer in _WORKLOADS.reviewers.values():
        try:
            response = _reviewed(reviewer, data)
        except ReviewInvalid as error:
            assert len(str(error)) < 400
            continue
        message = response.get("status", {}).get("message", "")
        assert message.isprintable()
        assert len(message) < 2000
        if "patch" in response:
            try:
                body = json.loads(data.decode(errors="replace"), strict=False)
            except (ValueError, RecursionError):
                continue  # values that no type has are skipped, not checked
            operations = json.loads(base64.b64decode(response["patch"]))
            body["request"]["object"] = patched(body["request"]["object"], operations)
            again = _reviewed(reviewer, json.dumps(body).encode())
            assert (again["allowed"], again.get("patch")) == (True, None)


def _reviewed(reviewer: WorkloadReviewer[Any], data: bytes) -> Any:  # noqa: ANN401 -- JSON
    return json.loads(reviewer(lambda: data, lambda: None))["response"]
