"""The check file: the agent's record that verification approved an image, beside the cache's pointer.

With it, a restarted agent needs no registry. It also holds the GPU targets of the image, so the agent can repeat the
preflight check for other GPUs without the registry. A check is valid for one object (by its uid), one image, one digest
and one set of policies.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec
from gkm.api.config import Verification
from gkm.api.signers import Signer
from gkm.api.targets import GpuTarget
from gkm.hoststate import files
from gkm.hoststate.files import UnreadableState
from gkm.hoststate.layout import Layout
from gkm.hoststate.names import CacheRef
from gkm.images.signatures.trust_material import fingerprint
from msgspec import Struct

FILE = "check.json"
_LATER_FIELDS = frozenset({"attestations", "signatureRepository"})
"""Fields of a policy that earlier versions did not know."""


class Approval(Struct, frozen=True, rename="camel"):
    """An image that verification approved, with the `notice` of the verdict, if any.

    `signers` are the signers whose signatures it accepted: a later policy can refuse them without the registry.
    `uid` is the uid of the cache object that proved its access to the image; "" without Kubernetes and in checks of
    older versions.
    """

    image: str
    digest: str
    policy: str
    targets: tuple[GpuTarget, ...]
    notice: str = ""
    signers: tuple[Signer, ...] = ()
    uid: str = ""


def save(layout: Layout, ref: CacheRef, check: Approval) -> None:
    """Write the check file of a cache, replacing an earlier one, and sync it to the disk."""
    files.replace(_path(layout, ref), msgspec.json.encode(check))


def load(layout: Layout, ref: CacheRef) -> Approval | None:
    """Return the check of a cache; None if the file is missing or damaged: the agent then verifies the image again.

    Raises:
        OSError: it cannot be read now (files.PASSING).
    """
    try:
        return msgspec.json.decode(files.read_bounded(_path(layout, ref)), type=Approval)
    except (FileNotFoundError, UnreadableState, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def remove(layout: Layout, ref: CacheRef) -> None:
    """Remove the check file of a cache; idempotent."""
    _path(layout, ref).unlink(missing_ok=True)


def policy_of(verification: Verification) -> Callable[[], str]:
    """Return a function that returns the present fingerprint of the verification rules and of the files they name.

    A changed fingerprint makes the agent verify every image again. `whenRevoked` and the check interval are not part of
    it: they do not change which images verification approves. Policies without a later field have the fingerprint of
    versions that did not know it, so that an upgrade needs no registry.
    """
    policies = [
        {name: value for name, value in msgspec.to_builtins(policy).items() if value or name not in _LATER_FIELDS}
        for policy in verification.policies
    ]
    rules = msgspec.json.encode({"mode": verification.mode, "policies": policies})
    return partial(fingerprint, tuple(verification.files()), rules)


def _path(layout: Layout, ref: CacheRef) -> Path:
    return layout.pointer(ref).with_name(FILE)
