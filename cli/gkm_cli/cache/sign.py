"""`gkm cache sign`: sign an image, or all images of a repository, so that cosign 2, cosign 3 and gkm verify them."""

import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Annotated

import typer
from gkm.api.errors import GKMError
from gkm.api.grammar import count_of, listed
from gkm.hoststate.escaping import escape
from gkm.images import local_reference
from gkm.images.image_store import ImageStore
from gkm.images.local_reference import FORMS
from gkm.images.reference import Reference
from gkm.images.signing import sign as signing
from gkm.images.signing.forms import ImageSigner

from gkm_cli.output import CommandFailed, Output, OutputOption, UsageError, line, show
from gkm_cli.registries import RefArgument, RegistryAccess, signature_repository
from gkm_cli.signing import SigningOptions

MAX_FAILURES = 3
"""One after the other: then the registry or the login is the cause, and each further tag would wait for it."""
_MAX_NAMES = 5
_MOST = 100_000
_OF_ARTIFACTS = re.compile(r"sha256-[0-9a-f]{64}(\.[a-z]+)?")
"""The tags of signatures and lists of referrers beside images."""
_LISTED_FACTOR = 10
"""The tags that are listed for each image that may be signed: signatures have tags too, also of earlier images."""


class TagState(StrEnum):
    """The result of `gkm cache sign --all-tags` for a tag; programs read these words."""

    SIGNED = "signed"
    ALREADY = "already signed"
    FAILED = "failed"
    LEFT = "not tried"


@dataclass(frozen=True, slots=True)
class TagResult:
    """A tag after the run; `detail` is the error, or the form of the signature that could not be stored."""

    tag: str
    state: TagState
    digest: str = ""
    detail: str = ""


def sign_tags(repository: str, limit: int, options: SigningOptions, access: RegistryAccess, output: Output) -> None:
    """Sign the images of all tags of a repository by one key, and print a line for each when it is done.

    A repeated run signs what is left: the signatures in the registry are the only record.

    Raises:
        UsageError: the reference names one image.
        CommandFailed: there are too many tags, or an image is not signed.
        GKMError: the tags cannot be listed, or the key cannot be read.
    """
    ref = _repository(repository)
    registry = access.store(ref)
    tags = image_tags(registry.tags(ref, limit * _LISTED_FACTOR + 1), limit)
    signer = options.signer()
    to = sys.stdout if output is Output.TABLE else sys.stderr
    results = []
    for result in signed(registry, ref, tags, signer):
        results.append(result)
        to.write(f"{escape(_line(ref, result))}\n")
        to.flush()
    entries = [
        {"tag": each.tag, "digest": each.digest, "state": each.state.value, "detail": each.detail} for each in results
    ]
    show({"repository": ref.name, "tags": entries}, output, lambda: None)
    _check(results)


def image_tags(tags: Sequence[str], limit: int) -> list[str]:
    """Return the tags of images among `tags`: without tags of signatures and other artifacts.

    Raises:
        CommandFailed: there are more than `limit` tags of images, or more than ten times as many of any kind.
    """
    found = [tag for tag in tags if not _OF_ARTIFACTS.fullmatch(tag)]
    if len(found) <= limit and len(tags) <= limit * _LISTED_FACTOR:
        return found
    of_any_kind = f"{limit * _LISTED_FACTOR} tags with those of signatures"
    many = f"{limit} tags of images" if len(found) > limit else of_any_kind
    larger = f"give --limit {min(limit * 10, _MOST)}"
    step = larger if limit < _MOST else "sign each image by its tag, without --all-tags"
    raise CommandFailed(f"the repository has more than {many}; {step}")


def signed(registry: ImageStore, ref: Reference, tags: Sequence[str], signer: ImageSigner) -> Iterator[TagResult]:
    """Sign the image of each tag, and yield what became of it; after MAX_FAILURES in a row, leave the rest."""
    done: dict[str, TagResult] = {}
    failures = 0
    for tag in tags:
        if failures == MAX_FAILURES:
            yield TagResult(tag, TagState.LEFT)
            continue
        try:
            pinned = ref.tagged(tag).pinned(registry.resolve(ref.tagged(tag)))
            if pinned.target not in done:
                done[pinned.target] = _signed(registry, pinned, tag, signer)
        except GKMError as error:
            failures += 1
            yield TagResult(tag, TagState.FAILED, detail=error.message)
        else:
            failures = 0
            yield replace(done[pinned.target], tag=tag)


def _signed(registry: ImageStore, pinned: Reference, tag: str, signer: ImageSigner) -> TagResult:
    found = signing.sign(registry, pinned, signer, signature_repository())
    missing = "; ".join(f"no {form} signature is stored: {why}" for form, why in found.missing.items())
    return TagResult(tag, TagState.SIGNED if found.added else TagState.ALREADY, found.digest, missing)


def _repository(text: str) -> Reference:
    ref = local_reference.parse(text)
    if not text.startswith(FORMS) and (ref.digest or ":" in text.rpartition("/")[2]):
        raise UsageError(f"--all-tags is for a repository, and {text[:200]} is one image", f"write {ref.name}")
    return ref


def _line(ref: Reference, result: TagResult) -> str:
    return f"{ref.tagged(result.tag)}: {result.state}" + (f": {result.detail}" if result.detail else "")


def _check(results: Sequence[TagResult]) -> None:
    without = [each.tag for each in results if each.state in (TagState.FAILED, TagState.LEFT)]
    if without:
        raise CommandFailed(
            f"{len(without)} of {count_of(len(results), 'tag')} are not signed: {listed(without, _MAX_NAMES)}; "
            "run the command again, which skips what is signed"
        )


AllTagsOption = Annotated[
    bool,
    typer.Option(
        "--all-tags", help="Sign the images of all tags of REF, a repository; skip those that this key has signed."
    ),
]
LimitOption = Annotated[
    int,
    typer.Option("--limit", min=1, max=_MOST, help="Refuse --all-tags for a repository with more tags of images."),
]


def sign(
    reference: RefArgument,
    *,
    options: SigningOptions,
    all_tags: AllTagsOption = False,
    limit: LimitOption = 1000,
    access: RegistryAccess,
    output: OutputOption = Output.TABLE,
) -> None:
    """Sign the digest that REF resolves to now, by a key or as an identity; with --all-tags, all images of REF."""
    options.check()
    if all_tags:
        if not options.key:
            raise UsageError("--all-tags needs --key", "a certificate for an identity ends after minutes")
        sign_tags(reference, limit, options, access, output)
        return
    # Before a token goes to Fulcio and before a password is asked for: the configuration may be wrong.
    ref = local_reference.parse(reference)
    registry = access.store(ref)
    signer = options.signer()
    pinned = ref.pinned(registry.resolve(ref))
    signed = signing.sign(registry, pinned, signer, signature_repository())
    for form, obstacle in signed.missing.items():
        sys.stderr.write(f"warning: {escape(f'no {form} signature is stored: {obstacle}')}\n")
    stored = {form.value: location for form, location in signed.stored.items()}
    missing = {form.value: str(obstacle) for form, obstacle in signed.missing.items()}
    result = {"digest": signed.digest, "signature": {"form": signed.form, "stored": stored, "missing": missing}}
    show(result, output, lambda: line(f"{pinned} signed ({signed.form})"))
