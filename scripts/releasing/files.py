"""The files of a release, and whether they agree with one another: checksums, SBOMs, provenance, images, chart."""

import hashlib
import json
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from releasing import contents, layout, manifests, provenance, sbom

CHECKSUMS = "SHA256SUMS"
CHANGES = "CHANGELOG.md"
IMAGES = "images"
DIGESTS = "values-digests.json"
"""For `helm --values`, which reads JSON as YAML."""
Json = dict[str, Any]


def sbom_file(name: str, platform: str) -> str:
    """Return the file of an image's SBOM."""
    return f"sbom/{name}-{platform.replace('/', '-')}.spdx.json"


def provenance_file(name: str) -> str:
    """Return the file of an image's provenance."""
    return f"provenance/{name}.intoto.json"


def write_json(path: Path, value: Json) -> None:
    """Write a value, readable and the same for the same value."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")


def write_digests(directory: Path) -> None:
    """Write values of the chart that name the images by digest: what is installed is what was signed."""
    write_json(directory / DIGESTS, digests(directory))


def digests(directory: Path) -> Json:
    """Return the values of the chart for the images in a release."""
    found = {path.name.removeprefix("gkm-"): layout.index_of(path)["digest"] for path in (directory / IMAGES).iterdir()}
    return {"image": {"digests": dict(sorted(found.items()))}}


def write_checksums(directory: Path) -> None:
    """Write the digests of all files, in the form of sha256sum."""
    lines = [f"{digest}  {name}\n" for name, digest in sorted(_digests(directory).items())]
    (directory / CHECKSUMS).write_text("".join(lines), encoding="utf-8")


def assets(directory: Path, version: str) -> list[Path]:
    """Return the files that a release on GitHub has, which has no directories."""
    single = [
        directory / name
        for name in (f"gkm-{version}.tgz", manifests.archive(version), manifests.INSTALL, DIGESTS, CHANGES)
    ]
    return [*single, *sorted(directory.glob("sbom/*")), *sorted(directory.glob("provenance/*"))]


@dataclass(frozen=True)
class Expected:
    """What a release must be; `base` is "" for a trial, which may be of any base and revision.

    `platforms` are those of each process, such as linux/amd64; empty: the same ones for all.
    """

    version: str
    locks: Path
    base: str = ""
    platforms: frozenset[str] = frozenset()


def problems(directory: Path, expected: Expected) -> Iterator[str]:
    """Yield what is wrong with a release in a directory; nothing if all of it agrees.

    The images must hold what the locks and the SBOMs name, and the provenance must be about them.
    """
    lines = [line.partition("  ") for line in (directory / CHECKSUMS).read_text(encoding="utf-8").splitlines()]
    different = {(name, digest) for digest, _, name in lines} ^ _digests(directory).items()
    yield from (f"{CHECKSUMS}: {name} differs" for name in sorted({name for name, _ in different}))
    if not (directory / CHANGES).read_text().strip():
        yield f"{CHANGES} is empty"
    if json.loads((directory / DIGESTS).read_bytes()) != digests(directory):
        yield f"{DIGESTS} names other images"
    yield from _chart_problems(directory, expected.version)
    yield from _manifest_problems(directory, expected.version)
    paths = sorted((directory / IMAGES).iterdir())
    built = {path.name: frozenset(image.platform for image in layout.images(path)) for path in paths}
    wanted = expected.platforms or frozenset().union(*built.values())
    for path in paths:
        if lacking := wanted ^ built[path.name]:
            yield f"{path.name} is not of the same platforms: {', '.join(sorted(lacking))}"
        yield from _image_problems(directory, path, expected)


def _chart_problems(directory: Path, version: str) -> Iterator[str]:
    file = directory / f"gkm-{version}.tgz"
    with tarfile.open(file) as archive:
        member = archive.extractfile("gkm/Chart.yaml")
        chart = yaml.load(member.read(), yaml.CSafeLoader) if member else {}
        crds = [name for name in archive.getnames() if name.startswith("gkm/crds/")]
    if {chart.get("version"), chart.get("appVersion")} != {version}:
        yield f"{file.name} is of version {chart.get('version')}"
    if not crds:
        yield f"{file.name} has no kinds"


def _manifest_problems(directory: Path, version: str) -> Iterator[str]:
    wanted = {f"gkm-{process}:{version}" for process in ("agent", "csi", "operator")}
    text = (directory / manifests.INSTALL).read_text(encoding="utf-8")
    if manifests.images(text) != wanted:
        yield f"{manifests.INSTALL} names other images than those of {version}"
    with tarfile.open(directory / manifests.archive(version)) as archive:
        member = archive.extractfile(f"deploy/{manifests.INSTALL}")
        if member is None or member.read().decode() != text:
            yield f"{manifests.archive(version)} differs from {manifests.INSTALL}"


def _image_problems(directory: Path, path: Path, expected: Expected) -> Iterator[str]:
    name, version, locks = path.name, expected.version, expected.locks
    yield from (f"{name}: blob {digest} is missing, damaged or unused" for digest in layout.damaged(path))
    statement = json.loads((directory / provenance_file(name)).read_bytes())
    subjects = {f"sha256:{each['digest']['sha256']}" for each in statement["subject"]}
    images = layout.images(path)
    if subjects != {layout.index_of(path)["digest"], *(image.digest for image in images)}:
        yield f"{name}: the provenance is about other images"
    if statement["predicateType"] != provenance.PREDICATE:
        yield f"{name}: the provenance is of type {statement['predicateType']}"
    if expected.base:
        yield from (f"{name} is of a trial: {wrong}" for wrong in provenance.problems(statement, expected.base))
    revision = statement["predicate"]["buildDefinition"]["externalParameters"]["revision"]
    lock = contents.locked((locks / f"{name.removeprefix('gkm-')}.lock").read_text(encoding="utf-8"))
    for image in images:
        labels = image.labels
        if labels.get("org.opencontainers.image.version") != version:
            yield f"{name} {image.platform}: its labels state another version"
        if labels.get("org.opencontainers.image.revision") != revision:
            yield f"{name} {image.platform}: its labels state another revision than the provenance"
        document = json.loads((directory / sbom_file(name, image.platform)).read_bytes())
        python, debian = contents.installed(image)
        try:
            contents.check_locked(python, lock, version)
        except contents.NotLocked as wrong:
            yield f"{name} {image.platform}: {wrong}"
        subject = sbom.Subject(name, version, image.platform, image.digest, "", "", "")
        listed, installed = (_listed(each) for each in (document, sbom.document(subject, python, debian)))
        about = document["packages"][0]["checksums"][0]["checksumValue"]
        if (listed, f"sha256:{about}") != (installed, image.digest):
            yield f"{name} {image.platform}: the SBOM is of another image"


def _listed(document: Json) -> set[tuple[str, str]]:
    """Return what an SBOM lists beside the image and its base."""
    return {(each["SPDXID"], each["versionInfo"]) for each in document["packages"][2:]}


def _digests(directory: Path) -> dict[str, str]:
    files = (path for path in directory.rglob("*") if path.is_file() and path.name != CHECKSUMS)
    found = {}
    for path in files:
        with path.open("rb") as opened:
            found[str(path.relative_to(directory))] = hashlib.file_digest(opened, "sha256").hexdigest()
    return found
