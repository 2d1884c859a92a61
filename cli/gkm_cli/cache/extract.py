"""`gkm cache extract`: the verified content of an image in a directory."""

import time
from pathlib import Path
from typing import Annotated

import typer
from gkm.api.errors import GKMError, Reason
from gkm.api.grammar import count_of
from gkm.images import cache
from gkm.mounts.relocation_paths import InvalidMountPath, MountPath

from gkm_cli.answers import No, Output, OutputOption, WrongUsage, line, show
from gkm_cli.cache import extracting
from gkm_cli.cache.extracting import Extracted
from gkm_cli.registries import Access, CAFileOption, ConfigOption, PlainHTTPOption, RefArgument
from gkm_cli.signers import (
    IdentityOption,
    IssuerOption,
    KeyOption,
    NamespaceOption,
    PolicyOption,
    Signers,
    TrustedRootOption,
    judged,
    verification,
)

ToOption = Annotated[Path, typer.Option("--to", metavar="DIR", help="Where the files go; it must not exist.")]
MountPathOption = Annotated[
    str,
    typer.Option(
        "--mount-path",
        metavar="PATH",
        help="Where the cache will be seen: the absolute paths inside it are rewritten for that.",
    ),
]


def extract(
    reference: RefArgument,
    *,
    to: ToOption,
    mount_path: MountPathOption = "",
    key: KeyOption = None,
    identity: IdentityOption = "",
    issuer: IssuerOption = "",
    trusted_root: TrustedRootOption = None,
    policy: PolicyOption = None,
    namespace: NamespaceOption = None,
    plain_http: PlainHTTPOption = False,
    ca_file: CAFileOption = None,
    config: ConfigOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Put the verified content of an image into DIR: all of it, or nothing."""
    if to.exists():
        raise GKMError(Reason.NOT_ALLOWED, f"{to} exists already", "name a directory that does not")
    path = _mount_path(mount_path)
    access = Access.of(config, plain_http=plain_http, ca_file=ca_file)
    wanted = verification(Signers(key, identity, issuer, trusted_root, policy), access.config)
    registry, pinned = access.pinned(reference)
    verdict = judged(registry, pinned, wanted, namespace)
    if not verdict.allowed:
        refusal = {"digest": pinned.digest, "verified": False, "message": verdict.message}
        show(refusal, output, lambda: line(f"not verified: {verdict.message}"))
        raise No
    began = time.monotonic()
    image = cache.describe(registry, pinned)
    made = extracting.extract(registry, image, to, access.config.store.max_image_bytes, path)
    answer = {
        "digest": pinned.digest,
        "verified": bool(verdict.verified),
        "files": made.files,
        "bytes": made.size_bytes,
        "seconds": round(time.monotonic() - began, 2),
        "rewritten": made.rewritten,
        "incomplete": made.incomplete,
    }
    show(answer, output, lambda: _tell(made, to, str(pinned), path))


def _mount_path(text: str) -> MountPath | None:
    try:
        return MountPath(text) if text else None
    except InvalidMountPath as error:
        raise WrongUsage(f"--mount-path: {error}", "name the path as containers will see it") from error


def _tell(made: Extracted, to: Path, image: str, path: MountPath | None) -> None:
    line(f"{to}: {count_of(made.files, 'file')}, {count_of(made.size_bytes, 'byte')} of {image}")
    if path is None:
        line(f"the paths inside are those of the machine that built it; to use it here: --mount-path {to.resolve()}")
    else:
        files = count_of(made.rewritten, "file")
        line(f"{files} with paths: rewritten for {path.text}, {made.incomplete} of them incomplete")
