"""Run the rules of a policy on the predicate of an attestation, in a child process that ends within its limits."""

import signal
import sys
import time
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from gkm.api import json_limits
from gkm.api.errors import GKMError, Reason
from gkm.api.policies import PredicateRule
from gkm.hoststate.bounded_command import BoundedCommand, CommandResult, RunFailed
from gkm.hoststate.escaping import escape
from gkm.images.manifest import decode
from gkm.images.signatures.rules_child import CPU_SECONDS, HEADROOM_BYTES, OUT_OF_MEMORY

RUN_SECONDS = 10.0
"""For a child, from its start: an idle machine needs 0.1 s beyond CPU_SECONDS."""
MAX_OUTPUT_BYTES = 4 << 10
MAX_EXPRESSION_SHOWN = 80
_PROGRAM = (sys.executable, "-I", "-W", "ignore", "-m", "gkm.images.signatures.rules_child")
_CRASHES = frozenset({signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGILL, signal.SIGFPE})


class _Statement(Struct):
    predicate: msgspec.Raw = msgspec.Raw(b"null")


class _Reply(Struct):
    rule: int = -1
    reason: str = ""


def violation(rules: Sequence[PredicateRule], payload: bytes, until: float) -> str:
    """Return the reason why the predicate of a statement does not satisfy all rules; "" if it does.

    The child ends at `until` (time.monotonic()).

    Raises:
        GKMError: METADATA_INVALID if the statement is malformed; NODE_ERROR if this machine could not run the rules.
    """
    if not rules:
        return ""
    predicate = decode(payload, _Statement, "signed statement", json_limits.check_predicate).predicate
    if has_nul(bytes(predicate)):
        return "its predicate holds the character U+0000, behind which rules see nothing"
    request = msgspec.json.encode({"rules": [rule.expression for rule in rules], "predicate": predicate})
    result = _run(request, min(RUN_SECONDS, until - time.monotonic()))
    if reason := _exceeded(result.code):
        return reason
    reply = _reply(result)
    if reply.rule < 0:
        return ""
    rule = rules[min(reply.rule, len(rules) - 1)]
    named = rule.message or f"{rule.expression[:MAX_EXPRESSION_SHOWN]!r}"
    return f"rule {reply.rule + 1} ({named}) {escape(reply.reason)}"


def has_nul(text: bytes) -> bool:
    r"""Return whether JSON holds the character NUL, for which it has one form: \u0000.

    The engine takes C strings: it would see what is before it as the whole. A backslash of a text is two in JSON, so
    these are taken out first, from the left: what is left begins an escape.
    """
    return rb"\u0000" in text.replace(rb"\\", b"")


def _run(request: bytes, seconds: float) -> CommandResult:
    if seconds <= 0:
        raise unavailable("the attestations of the image take too long to evaluate")
    try:
        return BoundedCommand(_PROGRAM, seconds, MAX_OUTPUT_BYTES, environment={}, directory="/").run(request)
    except RunFailed as error:
        raise unavailable(f"the process for the rules of attestations {error}") from error


def _exceeded(code: int) -> str:
    """Return what the end of a child means, if the rules or the predicate are its cause."""
    if code == -signal.SIGPROF:
        return f"its rules need more than {CPU_SECONDS:g} s of CPU time"
    if code == OUT_OF_MEMORY:
        return f"its rules need more than {HEADROOM_BYTES >> 20} MiB of memory"
    return f"its rules crash their process (signal {-code})" if -code in _CRASHES else ""


def _reply(result: CommandResult) -> _Reply:
    if result.code == 0 and result.output:
        return decode(result.output, _Reply, "result of the rules of attestations")
    raise unavailable(f"the process for the rules of attestations ended with status {result.code}")


def unavailable(message: str) -> GKMError:
    """Return the error that leaves the verdict open."""
    return GKMError(Reason.NODE_ERROR, message, "it is tried again")
