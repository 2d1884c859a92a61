"""A transparency log like Rekor: entries, signed timestamps, proofs of inclusion, checkpoints. In memory."""

import base64
import hashlib
import json
import time
from dataclasses import dataclass, field
from typing import Any

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from support.cluster.certificates import new_key, public_der

OTHERS = 5
"""Entries of others that are there first: a tree of one leaf would prove little."""


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


@dataclass
class Rekor:
    """Version 1 (ECDSA, says the time) or 2 (Ed25519, does not)."""

    key: ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey
    host: str
    leaves: list[bytes] = field(default_factory=lambda: [_leaf(b"other %d" % i) for i in range(OTHERS)])

    @classmethod
    def first(cls) -> "Rekor":
        return cls(new_key(), "rekor.testbed")

    @classmethod
    def second(cls) -> "Rekor":
        return cls(ed25519.Ed25519PrivateKey.generate(), "log2.testbed")

    @property
    def version(self) -> int:
        return 1 if isinstance(self.key, ec.EllipticCurvePrivateKey) else 2

    @property
    def log_id(self) -> bytes:
        if isinstance(self.key, ec.EllipticCurvePrivateKey):
            return hashlib.sha256(public_der(self.key.public_key())).digest()
        raw = self.key.public_key().public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
        # C2SP signed-note: an Ed25519 key's id is that of its name with it.
        return hashlib.sha256(f"{self.host}\n".encode() + b"\x01" + raw).digest()

    def add(self, body: bytes, kind: str, *, at: int | None = None) -> dict[str, Any]:
        """Store an entry; return it as a bundle holds it."""
        self.leaves.append(_leaf(body))
        index = len(self.leaves) - 1
        entry: dict[str, Any] = {
            "logIndex": str(index),
            "logId": {"keyId": b64(self.log_id)},
            "kindVersion": {"kind": kind, "version": "0.0.1" if self.version == 1 else "0.0.2"},
            "canonicalizedBody": b64(body),
            "inclusionProof": self.proof(index),
        }
        if self.version == 1:
            seconds = int(time.time()) if at is None else at
            entry["integratedTime"] = str(seconds)
            entry["inclusionPromise"] = {"signedEntryTimestamp": b64(self.promise(body, seconds, index))}
        return {key: value for key, value in entry.items() if value != "0"}

    def promise(self, body: bytes, seconds: int, index: int) -> bytes:
        """Return the signed entry timestamp, over RFC 8785's form of this object."""
        said = {"body": b64(body), "integratedTime": seconds, "logID": self.log_id.hex(), "logIndex": index}
        return self._sign(json.dumps(said, sort_keys=True, separators=(",", ":")).encode())

    def proof(self, index: int) -> dict[str, Any]:
        """Return the proof of inclusion in the tree of now."""
        root = _root(self.leaves)
        return {
            "logIndex": str(index),
            "treeSize": str(len(self.leaves)),
            "rootHash": b64(root),
            "hashes": [b64(each) for each in _path(index, self.leaves)],
            "checkpoint": {"envelope": self.checkpoint(root)},
        }

    def checkpoint(self, root: bytes) -> str:
        origin = f"{self.host} - 1234567890" if self.version == 1 else self.host
        note = f"{origin}\n{len(self.leaves)}\n{b64(root)}\n"
        return f"{note}\n\N{EM DASH} {self.host} {b64(self.log_id[:4] + self._sign(note.encode()))}\n"

    def _sign(self, data: bytes) -> bytes:
        if isinstance(self.key, ec.EllipticCurvePrivateKey):
            return self.key.sign(data, ec.ECDSA(hashes.SHA256()))
        return self.key.sign(data)


def _leaf(body: bytes) -> bytes:
    return hashlib.sha256(b"\0" + body).digest()


def _root(leaves: list[bytes]) -> bytes:
    """Return the Merkle tree hash (RFC 6962, 2.1)."""
    if len(leaves) == 1:
        return leaves[0]
    split = _split(leaves)
    return hashlib.sha256(b"\1" + _root(leaves[:split]) + _root(leaves[split:])).digest()


def _path(index: int, leaves: list[bytes]) -> list[bytes]:
    """Return the audit path (RFC 6962, 2.1.1)."""
    if len(leaves) == 1:
        return []
    split = _split(leaves)
    if index < split:
        return [*_path(index, leaves[:split]), _root(leaves[split:])]
    return [*_path(index - split, leaves[split:]), _root(leaves[:split])]


def _split(leaves: list[bytes]) -> int:
    return 1 << (len(leaves) - 1).bit_length() - 1
