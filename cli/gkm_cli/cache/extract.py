"""`gkm cache extract`: write the verified content of an image into a directory."""

import os
import shlex
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from gkm.api.grammar import count_of
from gkm.images import cache
from gkm.mounts.relocation.mount_path import MountPath

from gkm_cli.cache import extraction
from gkm_cli.cache.for_path import mount_path_of
from gkm_cli.output import NegativeResult, Output, OutputOption, UsageError, line, show
from gkm_cli.registries import RefArgument, RegistryAccess
from gkm_cli.signers import SignerOptions, verification, verify_image

ToOption = Annotated[Path, typer.Option("--to", metavar="DIR", help="The directory to create; it must not exist.")]
MountPathOption = Annotated[
    str,
    typer.Option(
        "--mount-path",
        metavar="PATH",
        help="The path where containers see the cache: gkm rewrites the absolute paths inside it.",
    ),
]


def extract(
    reference: RefArgument,
    *,
    to: ToOption,
    mount_path: MountPathOption = "",
    signers: SignerOptions,
    access: RegistryAccess,
    output: OutputOption = Output.TABLE,
) -> None:
    """Write the verified content of an image into DIR: all files, or no file."""
    if os.path.lexists(to):
        raise UsageError(f"--to {to}: it exists already", "remove it, or name another directory")
    path = mount_path_of("--mount-path", mount_path)
    wanted = verification(signers, access.config)
    registry, pinned = access.pinned(reference)
    verdict = verify_image(registry, pinned, wanted, signers.namespace)
    if not verdict.allowed:
        refusal = {"digest": pinned.digest, "verified": False, "message": verdict.message}
        show(refusal, output, lambda: line(f"not verified: {verdict.message}"))
        raise NegativeResult
    began = time.monotonic()
    image = cache.describe(registry, pinned)
    extracted, counts = extraction.extract(registry, image, to, access.config.store.max_image_bytes, path)
    result = {
        "digest": pinned.digest,
        "verified": bool(verdict.verified),
        "files": len(extracted.files),
        "bytes": extracted.size_bytes,
        "seconds": round(time.monotonic() - began, 2),
        "rewritten": counts.rewritten,
        "incomplete": counts.incomplete,
    }
    show(result, output, lambda: _print_result(result, to, str(pinned), path))


def _print_result(result: Mapping[str, Any], to: Path, image: str, path: MountPath | None) -> None:
    line(f"{to}: {count_of(result['files'], 'file')}, {count_of(result['bytes'], 'byte')} of {image}")
    if path is None:
        here = shlex.quote(str(to.resolve()))
        line(
            f"it has the paths of the machine that built it; to use it here, rm -r {here}, and add --mount-path {here}"
        )
    else:
        files = count_of(result["rewritten"], "file")
        line(f"{files} with paths: rewritten for {path.text}, {result['incomplete']} of them incomplete")
