"""`gkm cache`: build an image from a cache directory, verify it, look into it, check it against the GPUs here."""

import json
import time
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from gkm.api.config import Config
from gkm.api.errors import GKMError, Reason
from gkm.gpus import inventory, preflight
from gkm.images import build as building
from gkm.images import cache
from gkm.images.cache import CacheImage
from gkm.images.reference import Reference
from gkm.images.registry import Registry
from gkm.images.verify import Verdict, Verifier

from gkm_cli import extracting
from gkm_cli.answers import No, Output, OutputOption, line, show, table
from gkm_cli.registries import (
    CAFileOption,
    ConfigOption,
    KeyOption,
    PlainHTTPOption,
    read_config,
    registry_for,
    verification_for,
)

app = typer.Typer(help="Cache images: build, verify, inspect, check, extract.", no_args_is_help=True)
RefArgument = Annotated[str, typer.Argument(metavar="REF", help="registry/repository:tag or @sha256:…")]


@app.command(epilog="Example: gkm cache build ~/.triton/cache --image registry.example/team/llama:1 --push")
def build(
    directory: Annotated[Path, typer.Argument(metavar="DIR", exists=True, file_okay=False)],
    *,
    image: Annotated[str, typer.Option("--image", metavar="REF", help="What the image is called.")],
    push: Annotated[bool, typer.Option("--push", help="Push it to its registry.")] = False,
    plain_http: PlainHTTPOption = False,
    ca_file: CAFileOption = None,
    config: ConfigOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Make an image of the Triton cache in DIR, as MCV makes them."""
    ref = Reference.parse(image)
    built = building.build_triton(directory, ref.repository.rpartition("/")[2])
    if push:
        building.push(registry_for(ref, read_config(config), plain_http=plain_http, ca_file=ca_file), ref, built)
    manifest = json.loads(built.manifest)
    answer = {
        "image": str(ref),
        "digest": built.digest,
        "layers": manifest["layers"],
        "labels": built.labels,
        "manifest": manifest,
    }
    done = "pushed" if push else "built (nothing was pushed: add --push)"
    show(answer, output, lambda: line(f"{ref.name}@{built.digest} {done}"))


@app.command(epilog="Example: gkm cache verify registry.example/team/llama:1 --key cosign.pub")
def verify(
    reference: RefArgument,
    *,
    key: KeyOption = None,
    plain_http: PlainHTTPOption = False,
    ca_file: CAFileOption = None,
    config: ConfigOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Resolve REF and say of every signature whether it counts, and why; exit 3 when none does."""
    _, pinned, verdict = _judged(reference, key, read_config(config), plain_http=plain_http, ca_file=ca_file)
    if verdict.verified is None:
        raise GKMError(verdict.reason, verdict.message)
    signatures = [
        {"form": found.form.value, "keyid": found.key_id, "ok": found.ok, "reason": found.reason}
        for found in verdict.findings
    ]
    answer = {
        "digest": pinned.digest,
        "verified": verdict.verified,
        "message": verdict.message,
        "signatures": signatures,
    }
    show(answer, output, lambda: _show_verdict(verdict))
    if not verdict.verified:
        raise No


@app.command(epilog="Example: gkm cache inspect registry.example/team/llama:1 -o json")
def inspect(
    reference: RefArgument,
    *,
    plain_http: PlainHTTPOption = False,
    ca_file: CAFileOption = None,
    config: ConfigOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Say what is in an image, from its labels: no content is fetched."""
    image = _described(reference, config, plain_http=plain_http, ca_file=ca_file)
    answer = {
        "digest": image.digest,
        "format": image.format.value,
        "size": image.size_bytes,
        "entries": image.entry_count,
        "targets": [{"backend": t.backend, "arch": t.arch, "warpSize": t.warp_size} for t in image.targets],
        "labels": image.labels,
    }
    show(answer, output, lambda: _show_image(image))


@app.command(epilog="Example: gkm cache check registry.example/team/llama:1")
def check(
    reference: RefArgument,
    *,
    plain_http: PlainHTTPOption = False,
    ca_file: CAFileOption = None,
    config: ConfigOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Say which GPUs of this machine can use an image, which cannot, and why; exit 3 when none can."""
    image = _described(reference, config, plain_http=plain_http, ca_file=ca_file)
    verdict = preflight.check(image.targets, inventory.read().gpus)
    answer = {
        "compatibleGPUs": msgspec.to_builtins(verdict.compatible),
        "incompatibleGPUs": msgspec.to_builtins(verdict.incompatible),
        "message": verdict.message,
    }
    rows = [(_ids(group.ids), "yes", "") for group in verdict.compatible]
    rows += [(_ids(group.ids), group.reason, group.message) for group in verdict.incompatible]
    people = (lambda: table(("gpus", "fits", "why"), rows)) if rows else (lambda: line(f"no: {verdict.message}"))
    show(answer, output, people)
    if not verdict.fits:
        raise No


@app.command(epilog="Example: gkm cache extract registry.example/team/llama:1 --to ./cache --key cosign.pub")
def extract(
    reference: RefArgument,
    *,
    to: Annotated[Path, typer.Option("--to", metavar="DIR", help="Where the files go; it must not exist.")],
    key: KeyOption = None,
    plain_http: PlainHTTPOption = False,
    ca_file: CAFileOption = None,
    config: ConfigOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Put the verified content of an image into DIR: all of it, or nothing."""
    if to.exists():
        raise GKMError(Reason.NOT_ALLOWED, f"{to} exists already", "name a directory that does not")
    configured = read_config(config)
    registry, pinned, verdict = _judged(reference, key, configured, plain_http=plain_http, ca_file=ca_file)
    if not verdict.allowed:
        line(f"not verified: {verdict.message}")
        raise No
    began = time.monotonic()
    made = extracting.extract(registry, cache.describe(registry, pinned), to, configured.store.max_image_bytes)
    answer = {
        "digest": pinned.digest,
        "files": len(made.files),
        "bytes": made.size_bytes,
        "seconds": round(time.monotonic() - began, 2),
    }
    show(answer, output, lambda: line(f"{to}: {len(made.files)} files, {made.size_bytes} bytes of {pinned}"))


def _judged(
    reference: str, key: list[str] | None, configured: Config, *, plain_http: bool, ca_file: Path | None
) -> tuple[Registry, Reference, Verdict]:
    """Resolve once and verify exactly that."""
    ref = Reference.parse(reference)
    verification = verification_for(key, configured)
    registry = registry_for(ref, configured, plain_http=plain_http, ca_file=ca_file)
    pinned = ref.pinned(registry.resolve(ref))
    return registry, pinned, Verifier(verification).verify(registry, pinned, None)


def _described(reference: str, config: Path | None, *, plain_http: bool, ca_file: Path | None) -> CacheImage:
    ref = Reference.parse(reference)
    registry = registry_for(ref, read_config(config), plain_http=plain_http, ca_file=ca_file)
    return cache.describe(registry, ref.pinned(registry.resolve(ref)))


def _show_image(image: CacheImage) -> None:
    size = f"{image.size_bytes} bytes" if image.size_bytes is not None else "unknown size"
    entries = f"{image.entry_count} entries" if image.entry_count is not None else "an unknown number of entries"
    line(f"{image.ref}\n{image.format.value} cache, {entries}, {size}, {image.download_bytes} bytes to fetch")
    table(("backend", "arch", "warp size"), [(t.backend, t.arch, t.warp_size) for t in image.targets])


def _show_verdict(verdict: Verdict) -> None:
    line(("verified: " if verdict.verified else "not verified: ") + verdict.message)
    if verdict.findings:
        rows = [(f.form.value, f.key_id[:12], "yes" if f.ok else "no", f.reason) for f in verdict.findings]
        table(("form", "key", "counts", "why"), rows)


def _ids(ids: list[int]) -> str:
    return ",".join(map(str, ids))
