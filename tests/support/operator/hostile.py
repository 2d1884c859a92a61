"""What hostile clients of the webhook send: seeded, so that a failure can be had again."""

import copy
import json
import random
from collections.abc import Callable, Iterator
from typing import Any

from gkm_operator.admission.domains.patches import PREFERRED, REQUIRED
from gkm_operator.admission.https.session import MAX_BODY_BYTES
from support.operator import group_templates, pod_caches, workloads
from support.operator.reviews import review
from support.operator.webhook import REVIEW, post

GET = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"

VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1.5, 10**400, -(2**63), "", "\x00", "\ud800", "é" * 300, "a" * 5000, "../../etc/passwd",
    "registry.test/team/cache@sha256:" + "a" * 64, "a\r\nb: c", [], {}, [[]], [{}] * 50, {"": {"": None}}, "\u202e",
)  # fmt: skip


REVIEWS = (
    {"/validate": REVIEW}
    | {path: workloads.review(path, found) for path, found in workloads.reviewed_objects().items()}
    | group_templates.reviews()
    | pod_caches.reviews()
)
"""A review that is admitted, by path."""


def bodies(seed: int) -> Iterator[tuple[str, bytes]]:
    """Yield paths and bodies without end: reviews gone wrong in one way or several."""
    rng = random.Random(seed)
    while True:
        path = rng.choice(list(REVIEWS))
        body = REVIEWS[path]
        for change in rng.choices(_BODY_CHANGES, k=rng.choice((1, 1, 1, 2, 3))):
            body = change(rng, body)
        yield path, body


_METADATA, _CONTAINERS, _SPEC = '"metadata": {', '"containers": [', '"spec": {'
_TEMPLATE, _NAMES, _TASKS = '"template": {', '"commonGroupTemplates": [', '"tasks": ['
FILLINGS = (
    (_METADATA, '"labels": {', '"a%d":"",', '"z":""}, '),
    (_METADATA, '"annotations": {', '"grove.io/%d":"",', '"z":""}, '),
    (
        _METADATA,
        '"ownerReferences": [',
        '{"apiVersion":"","kind":"","name":"%d","uid":""},',
        '{"apiVersion":"","kind":"","name":"","uid":""}], ',
    ),
    (_METADATA, '"finalizers": [', '"",', '""], '),
    (_METADATA, '"managedFields": [', "{},", "{}], "),
    (_CONTAINERS, "", "{},", ""),
    (_CONTAINERS, "", '{"resources":{"limits":{"a":""}}},', ""),
    (_CONTAINERS, '{"resources":{"limits":{', '"a%d":1,', '"z":1}}},'),
    (_CONTAINERS, '{"resources":{"claims":[', '{"name":""},', '{"name":""}]}},'),
    (_CONTAINERS, "", "[[[[[[[[[[],", ""),
    (_CONTAINERS, '{"env":[', '{"name":"a%d"},', '{"name":"z"}]},'),
    (_CONTAINERS, '{"volumeMounts":[', '{"mountPath":"/%d"},', '{"mountPath":"/"}]},'),
    (_SPEC, '"volumes": [', '{"name":"a%d"},', '{"name":"z"}], '),
    (_SPEC, '"volumes": [{"csi":{"volumeAttributes":{', '"a%d":"",', '"z":""}}}], '),
    (_SPEC, f'"affinity": {{"nodeAffinity":{{"{PREFERRED}":[', "{},", "{}]}}, "),
    (_SPEC, f'"affinity": {{"nodeAffinity":{{"{REQUIRED}":{{"nodeSelectorTerms":[', "{},", "{}]}}}, "),
    (
        _SPEC,
        f'"affinity": {{"nodeAffinity":{{"{REQUIRED}":{{"nodeSelectorTerms":[{{"matchExpressions":[',
        "{},",
        "{}]}]}}}, ",
    ),
    (_TEMPLATE, '"a":[', "{},", "{}],"),
    (_TEMPLATE, "", '"a%d":[],', ""),
    (_TEMPLATE, '"validation":[', '{"expression":"%d"},', '{"expression":""}],'),
    (_NAMES, "", '"a%d",', ""),
    (_TASKS, "", '{"name":"a%d"},', ""),
    (_TASKS, '{"name":"a","labels":{', '"a%d":"",', '"z":""}},'),
    ('"userInfo": {', '"groups":[', '"",', '""],'),
    ('"userInfo": {', '"extra":{', '"a%d":[],', '"z":[]},'),
)


def large_workloads(path: str) -> Iterator[bytes]:
    """Yield reviews of the largest size, filled with many small values in the places that are decoded."""
    whole = REVIEWS[path].decode()
    for place, before, item, after in FILLINGS:
        count = (MAX_BODY_BYTES - len(whole) - len(before) - len(after)) // (len(item) + 5 * item.count("%d"))
        filling = "".join(item % number if "%d" in item else item for number in range(count))
        yield whole.replace(place, f"{place}{before}{filling}{after}", 1).encode()[:MAX_BODY_BYTES]


def waiting_workload(number: int) -> tuple[str, bytes]:
    """Return a review of the largest size that is decoded as a whole and then waits for the API server."""
    path = "/podcliquesets/default"
    claims = '"resourceClaims":[{"name":"x","resourceClaimTemplateName":"t%d"}],' % number  # noqa: UP031 -- braces
    one = f'{{"name":"c","spec":{{"podSpec":{{{claims}"containers":[{"{}," * 4095}{{}}]}}}}}},'
    whole = REVIEWS[path].decode().replace('"namespace": "team"', f'"namespace": "team-{number}"')
    before, _, after = whole.partition('"cliques": [')
    count = (MAX_BODY_BYTES - len(before) - len(after) - 16) // len(one)
    return path, f'{before}"cliques": [{one * count}{after}'.encode()


def wires(seed: int) -> Iterator[bytes]:
    """Yield without end the bytes of clients that completed TLS and send invalid requests."""
    rng = random.Random(seed)
    while True:
        yield rng.choice(_WIRES)(rng)


def handshakes(seed: int) -> Iterator[bytes]:
    """Yield without end what a client may write instead of a handshake."""
    rng = random.Random(seed)
    hello = bytes.fromhex("16030100c8010000c40303") + rng.randbytes(32) + bytes(158)
    while True:
        flipped = bytearray(hello)
        flipped[rng.randrange(len(flipped))] = rng.randrange(256)
        yield rng.choice((GET, b"", rng.randbytes(rng.randrange(600)), hello[: rng.randrange(200)], bytes(flipped)))


def _path(rng: random.Random, tree: Any) -> tuple[Any, Any]:  # noqa: ANN401 -- JSON
    """Return a container somewhere in the tree, and a key of it."""
    while True:
        key = rng.choice(list(tree) if isinstance(tree, dict) else list(range(len(tree))))
        below = tree[key]
        if not isinstance(below, dict | list) or not below or rng.random() < 0.3:
            return tree, key
        tree = below


def _field(rng: random.Random, body: bytes) -> bytes:
    try:
        tree = json.loads(body)
    except (ValueError, RecursionError):
        tree = None
    if body == REVIEW or not isinstance(tree, dict) or not tree:
        tree = review(
            dryRun=rng.choice((None, True)), oldObject={"spec": {"image": "x", "imagePullSecrets": [{"name": 1}]}}
        )
    for _change in range(rng.randrange(1, 4)):
        container, key = _path(rng, tree)
        if rng.random() < 0.3:
            del container[key]
            break
        container[key] = copy.deepcopy(rng.choice(VALUES))
    return json.dumps(tree).encode()


def _deep(rng: random.Random, _: bytes) -> bytes:
    depth = rng.choice((10, 900, 1100, 100_000))
    opened, closed = rng.choice(((b"[", b"]"), (b'{"a":', b"}")))
    where = rng.choice(
        (
            b'"spec": {"zz": ',
            b'"spec": {"imagePullSecrets": ',
            b'"metadata": {"labels": ',
            b'"request": ',
            b'"spec": {"podSpec": {"containers": ',
            b'"spec": {"template": {"cliques": ',
        )
    )
    return b'{"request": {"object": {' + where + opened * depth + b"1" + closed * depth + b"}}}}"


def _flip(rng: random.Random, body: bytes) -> bytes:
    changed = bytearray(body)
    for _ in range(rng.randrange(1, 9)):
        changed[rng.randrange(len(changed))] = rng.randrange(256)
    return bytes(changed)


def _cut(rng: random.Random, body: bytes) -> bytes:
    return body[: rng.randrange(1, len(body))] if len(body) > 1 else b"x"


def _insert(rng: random.Random, body: bytes) -> bytes:
    at = rng.randrange(len(body))
    return body[:at] + rng.randbytes(rng.randrange(1, 50)) + body[at:]


def _encode(rng: random.Random, body: bytes) -> bytes:
    text = body.decode("utf-8", "replace")
    return text.encode(rng.choice(("utf-16", "utf-32", "utf-8-sig", "utf-7", "cp500")), "replace") or b"x"


def _twice(_: random.Random, body: bytes) -> bytes:
    return body.replace(b'"uid":', b'"uid": "other", "uid":').replace(b'"image":', b'"image": 1, "image":')


def _number(rng: random.Random, body: bytes) -> bytes:
    number = rng.choice((b"1e999", b"NaN", b"-0", b"9" * 5000, b"0x1", b"1.", b"-", b"Infinity"))
    return body.replace(b'"u-1"', number).replace(b"null", number)


def _grow(rng: random.Random, body: bytes) -> bytes:
    filling = rng.choice((b" ", b'"', b"[1,", b'{"a":', b"\\u0000", b"\xff"))
    return body + filling * (rng.choice((10, 1000, 60_000)) // len(filling))


_BODY_CHANGES: tuple[Callable[[random.Random, bytes], bytes], ...] = (
    _field, _field, _field, _field, _deep, _flip, _cut, _insert, _encode, _twice, _number, _grow,
)  # fmt: skip


def _wrong_length(rng: random.Random) -> bytes:
    length = rng.choice(("-1", "+5", "0x10", "1e3", "", "5, 6", "99999999999999999999999", "8388609", "५", "10"))
    return f"POST /validate HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n".encode() + REVIEW


def _chunked(rng: random.Random) -> bytes:
    head = b"POST /validate HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: "
    kind = rng.choice((b"chunked", b"chunked, chunked", b"gzip", b"identity", b"Chunked\r\nContent-Length: 5"))
    return (
        head
        + kind
        + b"\r\n\r\n"
        + b"1\r\n \r\n" * rng.randrange(500)
        + rng.choice((b"0\r\n\r\n", b"zz\r\n", b"-1\r\n"))
    )


def _head(rng: random.Random) -> bytes:
    lines = rng.choice(
        (b"a:b\r\n" * 20_000, b"X: " + b"x" * 70_000, b" folded\r\n" * 10, b":\r\n", b"a b: c\r\n", b"\xff\x00: x\r\n")
    )
    return b"GET /healthz HTTP/1.1\r\nHost: x\r\n" + lines + b"\r\n\r\n"


def _line(rng: random.Random) -> bytes:
    method = rng.choice((b"POST", b"GET", b"HEAD", b"CONNECT", b"OPTIONS", b"post", b"P\x00ST", b"\xff", b"M" * 300))
    target = rng.choice(
        (b"/validate", b"*", b"http://elsewhere/validate", b"/../healthz", b"/%00", b"//", b"\xff", b"a:1")
    )
    version = rng.choice((b"HTTP/1.1", b"HTTP/1.0", b"HTTP/0.9", b"HTTP/2.0", b"HTTP/9.9", b"", b"HTTX/1.1"))
    more = rng.choice((b"", b"Upgrade: websocket\r\nConnection: upgrade\r\n", b"Connection: close\r\n", b"Host: y\r\n"))
    return method + b" " + target + b" " + version + b"\r\nHost: x\r\n" + more + b"Content-Length: 2\r\n\r\n{}"


def _pipelined(rng: random.Random) -> bytes:
    parts = (
        GET,
        post(REVIEW),
        post(b"{}"),
        b"\r\n\r\n",
        GET.replace(b"GET", b"HEAD"),
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    )
    return b"".join(rng.choices(parts, k=rng.randrange(2, 30)))


def _expecting(rng: random.Random) -> bytes:
    return post(REVIEW, f"Expect: {rng.choice(('100-continue', '200-ok', '100-continue, 100-continue'))}")


_WIRES: tuple[Callable[[random.Random], bytes], ...] = (
    _wrong_length,
    _chunked,
    _head,
    _line,
    _line,
    _pipelined,
    _expecting,
    lambda _: b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9),
    lambda rng: rng.randbytes(rng.randrange(1, 3000)),
    lambda rng: post(REVIEW)[: rng.randrange(1, len(post(REVIEW)))],
)
