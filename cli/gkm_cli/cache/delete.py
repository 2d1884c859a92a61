"""`gkm cache delete`: delete a tag or an image from a registry, and say what stays."""

import sys
from typing import Annotated

import typer
from gkm.api.errors import GKMError, Reason
from gkm.api.grammar import count_of
from gkm.hoststate.escaping import escape
from gkm.images import copying
from gkm.images.copying import Artifact
from gkm.images.local_reference import FORMS
from gkm.images.reference import Reference
from gkm.images.registries.registry import Registry

from gkm_cli.output import Output, OutputOption, UsageError, line, show
from gkm_cli.registries import RegistryAccess, signature_repository

TaggedArgument = Annotated[str, typer.Argument(metavar="REF", help="registry/repository:tag or @sha256:…")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
SignaturesOption = Annotated[
    bool, typer.Option("--with-signatures", help="Delete also the signatures, attestations and referrers of a digest.")
]
MAX_TAGS = 200
"""Limit of tags of a repository that are compared with the digest; each costs a request."""


def delete(
    reference: TaggedArgument,
    *,
    yes: YesOption = False,
    with_signatures: SignaturesOption = False,
    access: RegistryAccess,
    output: OutputOption = Output.TABLE,
) -> None:
    """Delete the tag or the digest REF from its registry; the bytes go when the registry collects its garbage."""
    ref = _reference(reference, with_signatures=with_signatures)
    registry = access.registry(ref, mirrored=False)
    pinned = ref.pinned(registry.manifest(ref).digest)
    place = pinned.in_repository(signature_repository())
    attached = copying.attached(registry, place)
    tags = _tags_of(registry, pinned) if ref.digest else None
    _confirm(_question(ref, pinned, attached, tags, with_signatures=with_signatures), yes=yes)
    deleted = _deleted_with(registry, place, attached) if with_signatures else []
    registry.delete(ref)
    result = {
        "deleted": str(ref),
        "digest": pinned.digest,
        "signatures": deleted,
        "stays": [] if with_signatures else [each.manifest.digest for each in attached],
        "tags": tags,
    }
    show(result, output, lambda: _print(ref, pinned, attached, deleted))


def _reference(text: str, *, with_signatures: bool) -> Reference:
    if text.startswith(FORMS):
        raise UsageError(
            f"{text[:200]} is on this machine, not in a registry", "remove the path, or name an image in a registry"
        )
    ref = Reference.parse(text)
    if ":" not in text.rpartition("/")[2] and not ref.digest:
        raise UsageError(f"{text[:200]} names no tag and no digest", f"write {ref.name}:TAG or {ref.name}@sha256:…")
    if with_signatures and not ref.digest:
        raise UsageError(
            "--with-signatures is for a digest, because other tags can name the same image",
            f"gkm cache inspect {ref} shows the digest",
        )
    return ref


def _tags_of(registry: Registry, pinned: Reference) -> list[str] | None:
    """Return the tags that name a digest; None if it is not known: the registry lists none, or has too many."""
    try:
        tags = registry.tags(pinned, MAX_TAGS + 1)
        if len(tags) > MAX_TAGS:
            return None
        return [tag for tag in tags if _names(registry, pinned.tagged(tag), pinned.target)]
    except GKMError as error:
        if error.reason in (Reason.NOT_FOUND, Reason.UNAUTHORIZED, Reason.REGISTRY_UNAVAILABLE):
            return None
        raise


def _names(registry: Registry, tag: Reference, digest: str) -> bool:
    try:
        return registry.resolve(tag) == digest
    except GKMError as error:
        if error.reason in (Reason.NOT_FOUND, Reason.METADATA_INVALID):
            return False
        raise


def _question(
    ref: Reference, pinned: Reference, attached: list[Artifact], tags: list[str] | None, *, with_signatures: bool
) -> str:
    if not ref.digest:
        return f"delete the tag {ref}? The image {pinned.digest} stays, with {_artifacts(attached)}"
    named = "its tags are not known" if tags is None else f"these tags name it: {', '.join(tags) or '-'}"
    goes = "go with it" if with_signatures else "stay (--with-signatures deletes them)"
    return f"delete {ref}? {named}; {_artifacts(attached)} {goes}"


def _confirm(question: str, *, yes: bool) -> None:
    """Ask on a terminal.

    Raises:
        UsageError: no terminal, and no --yes.
        typer.Exit: the answer is no.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError("there is no terminal to ask on", "add --yes")
    sys.stderr.write(f"{escape(question)} [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise typer.Exit(1)


def _deleted_with(registry: Registry, place: Reference, attached: list[Artifact]) -> list[str]:
    """Delete what is attached, the last first: so a run that is cut off finds the rest again."""
    deleted = [artifact.manifest.digest for artifact in reversed(attached)]
    for digest in deleted:
        registry.delete(place.pinned(digest))
    for subject in {place.target, *(artifact.subject for artifact in attached)}:
        tag = place.pinned(subject).tag_of_digest()
        try:
            registry.delete(tag.pinned(registry.resolve(tag)))  # the list of referrers, where there is no API for it
        except GKMError as error:
            if error.reason is not Reason.NOT_FOUND:
                raise
    return deleted


def _print(ref: Reference, pinned: Reference, attached: list[Artifact], deleted: list[str]) -> None:
    line(f"{ref} deleted")
    if not ref.digest:
        line(f"the image stays as {pinned}")
    if deleted:
        line(f"{count_of(len(deleted), 'artifact')} attached to it deleted")
    elif attached:
        line(f"{_artifacts(attached)} stay in {ref.name}")


def _artifacts(attached: list[Artifact]) -> str:
    return f"{count_of(len(attached), 'artifact')} attached (signatures, attestations and other referrers)"
