"""`gkm cache diff`: compare two images: facts, targets, and the files of the cache."""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from gkm.api.config import ConfigInvalid
from gkm.api.errors import GKMError
from gkm.images.cache import CacheImage
from gkm.images.image_store import ImageSource

from gkm_cli.cache import extraction
from gkm_cli.output import Output, OutputOption, Undecided, line, show, table
from gkm_cli.registries import REF_HELP, RegistryAccess

DIFFERENT = 1
"""The exit code for different images, as diff(1) has it."""
Facts = dict[str, str]


def diff(
    first: Annotated[str, typer.Argument(metavar="A", help=REF_HELP)],
    second: Annotated[str, typer.Argument(metavar="B", help=REF_HELP)],
    *,
    access: RegistryAccess,
    output: OutputOption = Output.TABLE,
) -> None:
    """Compare two images: labels, targets, sizes and files; exit 0 for one digest, 1 for two, 2 without an answer."""
    try:
        result = _compared([access.described(each) for each in (first, second)], access.config.store.max_image_bytes)
    except (ConfigInvalid, GKMError, OSError) as error:
        raise Undecided from error
    show(result, output, lambda: _print(result))
    if not result["same"]:
        raise typer.Exit(DIFFERENT)


def _compared(places: list[tuple[ImageSource, CacheImage]], limit: int) -> dict[str, Any]:
    (_, a), (_, b) = places
    same_content = [each.digest for each in a.layers] == [each.digest for each in b.layers]
    return {
        "same": a.digest == b.digest,
        "images": [str(a.ref), str(b.ref)],
        "facts": changes(_facts(a), _facts(b)),
        "files": [] if same_content else changes(*(_files(source, image, limit) for source, image in places)),
    }


def changes(a: Mapping[str, str], b: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the entries that differ between two mappings: added, removed or changed, with both values."""
    names = sorted(name for name in a.keys() | b.keys() if a.get(name) != b.get(name))
    return [{"name": name, "change": _change(a, b, name), "a": a.get(name), "b": b.get(name)} for name in names]


def _change(a: Mapping[str, str], b: Mapping[str, str], name: str) -> str:
    return "changed" if name in a and name in b else "removed" if name in a else "added"


def _facts(image: CacheImage) -> Facts:
    facts = {
        "digest": image.digest,
        "format": image.runtime,
        "created": str(image.created or ""),
        "size": str(image.size_bytes),
        "download": str(image.download_bytes),
        "entries": str(image.entry_count),
    }
    facts |= {f"label {name}": value for name, value in image.labels.items()}
    targets = {f"{each.backend}:{each.arch}:{each.warp_size}" for each in image.targets}
    return facts | {f"target {target}": "yes" for target in targets}


def _files(source: ImageSource, image: CacheImage, limit: int) -> Facts:
    """Fetch the content into a temporary directory; return size and digest of each file."""
    with tempfile.TemporaryDirectory(prefix="gkm-diff-") as directory:
        extracted, _ = extraction.extract(source, image, Path(directory) / "content", limit, None)
        return {file.path: f"{file.size} bytes, sha256:{file.sha256}" for file in extracted.files}


def _print(result: dict[str, Any]) -> None:
    if result["same"]:
        line("the same image")
        return
    table(("fact", "change", "a", "b"), [_row(each) for each in result["facts"]])
    if result["files"]:
        table(("file", "change", "a", "b"), [_row(each) for each in result["files"]])
    else:
        line("the same files")


def _row(change: dict[str, Any]) -> tuple[str, ...]:
    return change["name"], change["change"], change["a"] or "", change["b"] or ""
