"""What a cache was let through for: written beside the pointer, so that a restart needs no registry.

Whoever holds a check may be judged against other GPUs without asking anybody: the targets are those of the digest.
It stands for one object (by its uid), one image, one digest and one set of policies; with any other it counts for
nothing.
"""

from pathlib import Path

import msgspec
from gkm.api.config import Verification
from gkm.api.signers import Signer
from gkm.hoststate import files
from gkm.hoststate.files import UnreadableState
from gkm.hoststate.layout import Layout
from gkm.hoststate.names import CacheRef
from gkm.images.signatures.policy_files import Fingerprint
from msgspec import Struct

FILE = "check.json"


class CheckedTarget(Struct, frozen=True, rename="camel"):
    """A GPU that the image was built for."""

    backend: str
    arch: str
    warp_size: int
    ptx_version: int = 0
    cuda_version: str = ""


class Check(Struct, frozen=True, rename="camel"):
    """An image that verification let through: `notice` is what it had to say about that, if anything.

    `signers` are those whose signatures counted, so that a later policy can refuse them without a registry.
    `uid` is that of the cache object that showed its access to the image; "" without Kubernetes, and in checks that
    were written before there was a uid in them.
    """

    image: str
    digest: str
    policy: str
    targets: tuple[CheckedTarget, ...]
    notice: str = ""
    signers: tuple[Signer, ...] = ()
    uid: str = ""


def save(layout: Layout, ref: CacheRef, check: Check) -> None:
    """Replace the check of a cache, durably."""
    files.replace(_path(layout, ref), msgspec.json.encode(check))


def load(layout: Layout, ref: CacheRef) -> Check | None:
    """Return the check of a cache; None also for one that cannot be read, which costs no more than asking again."""
    try:
        return msgspec.json.decode(files.read_bounded(_path(layout, ref)), type=Check)
    except (FileNotFoundError, UnreadableState, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def remove(layout: Layout, ref: CacheRef) -> None:
    """Forget the check of a cache; idempotent."""
    _path(layout, ref).unlink(missing_ok=True)


def policy_of(verification: Verification) -> Fingerprint:
    """Return the name of what is demanded, which follows the content of its files: a new key or root asks anew.

    What follows from a refusal, and when it is looked for, is no demand: a change of that asks nobody.
    """
    demand = msgspec.json.encode({"mode": verification.mode, "policies": verification.policies})
    return Fingerprint(verification.files(), demand)


def _path(layout: Layout, ref: CacheRef) -> Path:
    return layout.pointer(ref).with_name(FILE)
