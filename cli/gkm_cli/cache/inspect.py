"""`gkm cache inspect`: show format, targets and entries of an image."""

import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer
from gkm.api.errors import GKMError
from gkm.api.grammar import count_of
from gkm.api.targets import GpuTarget
from gkm.images.assembly.versions import stated_versions
from gkm.images.cache import CacheImage, RuntimeCache
from gkm.images.cache_entries import CacheEntry, entries_in
from gkm.images.cache_mounts import LABEL, CacheMounts, cache_mounts
from gkm.images.image_store import ImageSource
from gkm.runtimes import BY_NAME
from gkm.runtimes.placement import directory_of
from msgspec import to_builtins

from gkm_cli.cache import extraction
from gkm_cli.output import Output, OutputOption, line, show, table
from gkm_cli.registries import RefArgument, RegistryAccess

EntriesOption = Annotated[
    bool, typer.Option("--entries", help="Fetch the content and list every entry; the labels list only the GPUs.")
]


def inspect(
    reference: RefArgument,
    *,
    entries: EntriesOption = False,
    access: RegistryAccess,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show format, targets and labels of an image; --entries also fetches the content and lists its entries."""
    registry, image = access.described(reference)
    further = _further_trees(image)
    found, files = _content(registry, image, access.config.store.max_image_bytes) if entries else (None, None)
    result = {
        "digest": image.digest,
        "format": image.runtime,
        "caches": [_cache(image, cache) for cache in image.caches],
        "size": image.size_bytes,
        "entryCount": image.entry_count,
        "entries": [_entry(entry) for entry in found] if found is not None else _entries_from_labels(image),
        "files": files,
        "versions": stated_versions(image.labels),
        "targets": [_target(target) for target in image.targets],
        "furtherTrees": to_builtins(further),
        "labels": image.labels,
    }
    show(result, output, lambda: _print_result(image, found, further))


def _further_trees(image: CacheImage) -> CacheMounts | None:
    """Return the further trees that the labels state; None if the label cannot be read, which is no fault of others."""
    try:
        return cache_mounts(image.labels)
    except GKMError:
        return None


def _content(registry: ImageSource, image: CacheImage, max_bytes: int) -> tuple[list[CacheEntry], int]:
    """Fetch the content into a temporary directory; return its entries and the number of its files."""
    with tempfile.TemporaryDirectory(prefix="gkm-inspect-") as directory:
        extracted, _ = extraction.extract(registry, image, Path(directory) / "content", max_bytes, None)
    entries = [entry for manifest in extracted.manifests.values() for entry in entries_in(manifest)]
    return entries, len(extracted.files)


def _cache(image: CacheImage, cache: RuntimeCache) -> dict[str, Any]:
    """Return one cache, and the variables that name its directory below the path of the image."""
    name, names = cache.format.value, [kind.value for kind in image.formats]
    return {
        "format": name,
        "directory": directory_of(name, names),
        "variables": list(BY_NAME[name].variables),
        "size": cache.size_bytes,
        "entryCount": cache.entry_count,
        "targets": [_target(target) for target in cache.targets],
    }


def _entry(entry: CacheEntry) -> dict[str, Any]:
    return {
        "form": entry.form or None,
        "hash": entry.hash or None,
        "backend": entry.backend or None,
        "arch": entry.arch or None,
        "warpSize": entry.warp_size,
        "ptxVersion": entry.ptx_version,
        "dummyKey": entry.dummy_key or None,
    }


def _target(target: GpuTarget) -> dict[str, Any]:
    return {
        "backend": target.backend,
        "arch": target.arch,
        "warpSize": target.warp_size,
        "ptxVersion": target.ptx_version or None,
        "cudaVersion": target.cuda_version or None,
    }


def _entries_from_labels(image: CacheImage) -> list[dict[str, Any]]:
    """Return the entries that the labels describe: one for each kind of GPU, without hashes."""
    return [
        _entry(CacheEntry("", "", target.backend, target.arch, target.warp_size, target.ptx_version or None, ""))
        for target in image.targets
    ]


def _print_result(image: CacheImage, entries: list[CacheEntry] | None, further: CacheMounts | None) -> None:
    size = f"{image.size_bytes} bytes" if image.size_bytes is not None else "unknown size"
    count = (
        count_of(image.entry_count, "entry", "entries")
        if image.entry_count is not None
        else "an unknown number of entries"
    )
    line(str(image.ref))
    line(f"{image.runtime} cache, {count}, {size}, {image.download_bytes} bytes to fetch")
    if len(image.caches) > 1:
        caches = [_cache(image, cache) for cache in image.caches]
        places = [(each["directory"], each["entryCount"], each["size"], " ".join(each["variables"])) for each in caches]
        table(("directory", "entries", "bytes", "variables"), places)
    if versions := stated_versions(image.labels):
        line(f"compiled by {', '.join(f'{name} {version}' for name, version in versions.items())}")
    if further is None:
        line(f"the label {LABEL} cannot be read")
    elif further:
        rows = [(each.sub_path, each.abs_path, each.env, "yes" if each.requires_writable else "no") for each in further]
        table(("further tree", "path in a container", "variable", "writable"), rows)
        line("GKM mounts none of the further trees")
    if entries is None:
        table(("backend", "arch", "warp size"), [(t.backend, t.arch, t.warp_size) for t in image.targets])
    else:
        listed = [(e.form, e.backend, e.arch, e.warp_size or "", e.hash) for e in entries]
        table(("form", "backend", "arch", "warp size", "hash"), listed)
