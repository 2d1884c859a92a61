"""`gkm cache attest`: sign a statement about an image, such as its provenance, and attach it."""

from pathlib import Path
from typing import Annotated, Any

import typer
from gkm.api import json_limits
from gkm.api.errors import GKMError, Reason
from gkm.api.policies import RequiredAttestation
from gkm.images import local_reference
from gkm.images.manifest import decode
from gkm.images.reference import Reference
from gkm.images.signatures.attestations import MAX_REQUIRED_BYTES
from gkm.images.signatures.signature_formats import STATEMENT_TYPES
from gkm.images.signing import forms
from gkm.images.signing.sign import attest as attach
from msgspec import Struct, field

from gkm_cli import predicate_types
from gkm_cli.inputs import files
from gkm_cli.output import Output, OutputOption, UsageError, line, show
from gkm_cli.registries import RefArgument, RegistryAccess, signature_repository
from gkm_cli.signing import SigningOptions

MAX_BYTES = MAX_REQUIRED_BYTES // 4 * 3 - (64 << 10)
"""Size of the file: base64 adds a third, certificate and log entry the rest."""
FileArgument = Annotated[
    Path,
    typer.Argument(metavar="FILE", help="An in-toto statement about the image, or a predicate, as JSON; - is stdin."),
]
TypeOption = Annotated[
    str,
    typer.Option(
        "--type", metavar="TYPE", help="The type of the predicate: a URI, or cosign's name; a statement names its own."
    ),
]


class _Subject(Struct):
    digest: dict[str, str] = field(default_factory=dict)


class _Statement(Struct, rename={"type": "_type", "predicate_type": "predicateType"}):
    type: str = ""
    predicate_type: str = ""
    subject: list[_Subject] = field(default_factory=list)
    predicate: Any = None


def attest(
    reference: RefArgument,
    file: FileArgument,
    *,
    predicate_type: TypeOption = "",
    options: SigningOptions,
    access: RegistryAccess,
    output: OutputOption = Output.TABLE,
) -> None:
    """Sign the statement or predicate in FILE about the digest that REF resolves to now, and attach it."""
    options.check()
    stated = predicate_types.predicate_type(predicate_type, "--type") if predicate_type else ""
    raw = files.read_all(file, MAX_BYTES)
    ref = local_reference.parse(reference)
    registry = access.store(ref)
    pinned = ref.pinned(registry.resolve(ref))
    kind, predicate = _read(raw, files.name(file), stated, pinned)
    _check_readable(forms.statement(pinned, kind, predicate), files.name(file))
    stored = attach(registry, pinned, kind, predicate, options.signer(), repository=signature_repository())
    result = {"digest": pinned.digest, "predicateType": kind, "stored": stored}
    show(result, output, lambda: line(f"{pinned} attested ({kind})"))


def _check_readable(statement: bytes, name: str) -> None:
    """Refuse a statement that GKM would not read; a file with blanks may hold more values than its compact form."""
    try:
        json_limits.check_predicate(statement)
    except json_limits.TooManyValues as error:
        raise GKMError(Reason.TOO_LARGE, f"{name} cannot be attested: {error}", "attest fewer values") from error
    if len(statement) > MAX_BYTES:
        raise GKMError(Reason.TOO_LARGE, f"{name} has {len(statement)} bytes as a statement", "attest a smaller file")


def _read(raw: bytes, name: str, predicate_type: str, ref: Reference) -> tuple[str, Any]:
    """Return type and predicate of a statement about `ref`, or of a predicate of `predicate_type`.

    Raises:
        UsageError: the type is missing, or not the statement's.
        GKMError: METADATA_INVALID if the file is malformed; CONTENT_MISMATCH if the statement is about another image.
    """
    document = decode(raw, Any, name, json_limits.check_predicate)
    stated = isinstance(document, dict) and document.get("_type") in STATEMENT_TYPES
    if stated:
        statement = decode(raw, _Statement, name, json_limits.check_predicate)
        if predicate_type not in ("", statement.predicate_type):
            raise UsageError(f"{name} is a statement {statement.predicate_type[:200]!r}", "leave --type out")
        if not any(f"sha256:{each.digest.get('sha256')}" == ref.digest for each in statement.subject):
            raise GKMError(
                Reason.CONTENT_MISMATCH,
                f"{name} is a statement about another image than {ref}",
                "name the image that was built with it, by its digest",
            )
        predicate_type, document = statement.predicate_type, statement.predicate
    if not predicate_type:
        raise UsageError(f"{name} is no statement, so its type is not known", "name it with --type")
    try:
        RequiredAttestation(predicate_type)
    except ValueError as error:
        raise UsageError(
            f"the type {predicate_type[:200]!r} cannot be attested: {error}", "name another type"
        ) from error
    return predicate_type, document
