"""Verification of entries of Sigstore's transparency log (Rekor 1 and 2).

An entry can come with two proofs: the log's signature over body and time (Rekor 1's signed entry timestamp, "SET"), and
a proof of inclusion in a Merkle tree whose root the log signed (a checkpoint, C2SP tlog-checkpoint). An entry needs one
of them, and every present proof must be valid. `entry_body` compares the body of the entry with the signature.
"""

import base64
import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime

import rfc8785

from gkm.images.signatures import trust_material
from gkm.images.signatures.bundles import InclusionProof, LogEntry
from gkm.images.signatures.certificates import Untrusted
from gkm.images.signatures.trust_material import TrustedLog, TrustedRoot

_NOT_THEN = "has a log entry from a time for which the log is not trusted"
MAX_HASHES = 64
"""Levels of a Merkle tree; an index has 63 bits."""


def check(entry: LogEntry, root: TrustedRoot, stamped: Sequence[datetime] = ()) -> tuple[datetime, ...]:
    """Check that a log that was trusted at the time has the entry; return all confirmed times.

    These are the times in `stamped`, which timestamp authorities confirm, and the log's own time. A log that states no
    time (Rekor 2) must have been trusted at the stamped times. Without a stamped time it must be trusted now, because
    there is no other proof that the entry is older than the end of the log's period.

    Raises:
        Untrusted: no trusted log has the entry.
    """
    log = trust_material.find_log(root.logs, entry.log_id.key_id)
    if log is None:
        raise Untrusted("is logged in a transparency log that is not trusted")
    if not entry.promise and not entry.inclusion_proof:
        raise Untrusted("has a log entry without a proof")
    if entry.inclusion_proof:
        _check_included(entry.canonicalized_body, entry.inclusion_proof, log)
    if entry.promise:
        return (*stamped, _signed_time(entry, log))
    if not all(map(log.period.contains, stamped or (datetime.now(UTC),))):
        raise Untrusted(_NOT_THEN)
    return tuple(stamped)


def _signed_time(entry: LogEntry, log: TrustedLog) -> datetime:
    text: dict[str, int | str] = {
        "body": base64.b64encode(entry.canonicalized_body).decode(),
        "integratedTime": int(entry.integrated_time),
        "logID": entry.log_id.key_id.hex(),
        "logIndex": int(entry.log_index),
    }
    try:
        when = datetime.fromtimestamp(int(entry.integrated_time), UTC)
        signed = rfc8785.dumps(text)
    except (ValueError, OverflowError, OSError, rfc8785.CanonicalizationError) as error:
        raise Untrusted("has a log entry with an impossible time or index") from error
    if not log.key.verifies(entry.promise, signed):
        raise Untrusted("has a log entry that was changed: the log's signature does not cover it")
    if not log.period.contains(when):
        raise Untrusted(_NOT_THEN)
    return when


def _check_included(body: bytes, proof: InclusionProof, log: TrustedLog) -> None:
    size, root_hash = _checkpoint(proof.checkpoint.envelope, log)
    if root_hash != proof.root_hash or size != int(proof.tree_size):
        raise Untrusted("has a log entry whose checkpoint belongs to another tree")
    if root_of(body, proof) != root_hash:
        raise Untrusted("has a log entry that is not in the tree that the log has signed")


def root_of(body: bytes, proof: InclusionProof) -> bytes:
    """Return the root hash that a proof of inclusion yields (RFC 9162, 2.1.3.2).

    Raises:
        Untrusted: the length of the proof does not match index and size.
    """
    number, size = int(proof.log_index), int(proof.tree_size)
    if not 0 <= number < size < 1 << 63 or len(proof.hashes) > MAX_HASHES:
        raise Untrusted("has a log entry with an impossible index")
    last = size - 1
    result = hashlib.sha256(b"\0" + body).digest()
    for sibling in proof.hashes:
        if last == 0:
            raise Untrusted("has a log entry with a proof of the wrong length")
        if number & 1 or number == last:
            result = hashlib.sha256(b"\1" + sibling + result).digest()
            while not number & 1 and number:
                number, last = number >> 1, last >> 1
        else:
            result = hashlib.sha256(b"\1" + result + sibling).digest()
        number, last = number >> 1, last >> 1
    if last:
        raise Untrusted("has a log entry with a proof of the wrong length")
    return result


def _checkpoint(text: str, log: TrustedLog) -> tuple[int, bytes]:
    """Return the size and root hash in a checkpoint; check the log's signature (C2SP signed-note)."""
    note, separator, signatures = text.partition("\n\n")
    lines = note.split("\n")
    if not separator or len(lines) < 3 or not lines[0]:  # noqa: PLR2004 -- origin, size, root hash
        raise Untrusted("has a log entry with a malformed checkpoint")
    signed = f"{note}\n".encode()
    for line in signatures.split("\n")[:16]:
        dash, _, rest = line.partition(" ")
        _, _, encoded = rest.partition(" ")
        # A hint of four bytes precedes the signature. Any line may be the log's, because witnesses sign the same note.
        signature = _base64(encoded)[4:]
        if dash == "\N{EM DASH}" and signature and log.key.verifies(signature, signed):
            return _number(lines[1]), _base64(lines[2])
    raise Untrusted("has a log entry whose checkpoint the log has not signed")


def _number(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 19:  # noqa: PLR2004 -- digits of 63 bits
        raise Untrusted("has a log entry with a malformed checkpoint")
    return int(text)


def _base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as error:
        raise Untrusted("has a log entry with a malformed checkpoint") from error
