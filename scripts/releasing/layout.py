"""OCI image layouts of a release: what buildah wrote for each platform, made one index; never changes a blob.

Source: image-spec 1.1, "Image Layout" and "Image Index".
"""

import hashlib
import json
import tarfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

OCI_INDEX = "application/vnd.oci.image.index.v1+json"
REF_NAME = "org.opencontainers.image.ref.name"
Json = dict[str, Any]


@dataclass(frozen=True)
class Image:
    """The image of one platform, such as linux/arm64, in the layout `directory`."""

    directory: Path
    platform: str
    descriptor: Json

    @property
    def digest(self) -> str:
        """Return the digest of its manifest."""
        return str(self.descriptor["digest"])

    @property
    def manifest(self) -> Json:
        """Return its manifest."""
        return read(self.directory, self.descriptor)

    @property
    def labels(self) -> Mapping[str, str]:
        """Return the labels of its configuration."""
        found: Mapping[str, str] = read(self.directory, self.manifest["config"])["config"].get("Labels") or {}
        return found

    def files(self, wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
        """Yield path and content of the regular files that `wanted` selects; a later layer wins if you let it."""
        for layer in self.manifest["layers"]:
            with tarfile.open(blob_path(self.directory, layer["digest"]), "r:*") as archive:
                for member in archive:
                    path = member.name.removeprefix("./")
                    if member.isfile() and wanted(path) and (content := archive.extractfile(member)):
                        yield path, content.read()


def blob_path(directory: Path, digest: str) -> Path:
    """Return the file of a blob."""
    return directory / "blobs" / "sha256" / digest.removeprefix("sha256:")


def read(directory: Path, descriptor: Json) -> Json:
    """Return a blob of JSON."""
    found: Json = json.loads(blob_path(directory, descriptor["digest"]).read_bytes())
    return found


def join(directory: Path, tag: str) -> Json:
    """Make one index of the images in a layout, name it by `tag`, and return its descriptor.

    buildah wrote one image for each platform and named it by that.
    """
    file = directory / "index.json"
    single = json.loads(file.read_bytes())["manifests"]
    entries = []
    for found in sorted(single, key=lambda each: str(each["annotations"][REF_NAME])):
        config = read(directory, read(directory, found)["config"])
        described = {name: config[name] for name in ("architecture", "os", "variant") if config.get(name)}
        entries.append({name: found[name] for name in ("mediaType", "digest", "size")} | {"platform": described})
    raw = json.dumps({"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": entries}).encode()
    digest = f"sha256:{hashlib.sha256(raw).hexdigest()}"
    blob_path(directory, digest).write_bytes(raw)
    index = {"mediaType": OCI_INDEX, "digest": digest, "size": len(raw), "annotations": {REF_NAME: tag}}
    file.write_text(json.dumps({"schemaVersion": 2, "manifests": [index]}), encoding="utf-8")
    return index


def index_of(directory: Path) -> Json:
    """Return the descriptor of the one index in a layout that `join` made."""
    (found,) = json.loads((directory / "index.json").read_bytes())["manifests"]
    return dict(found)


def images(directory: Path) -> list[Image]:
    """Return the images of all platforms."""
    listed = read(directory, index_of(directory))["manifests"]
    return [Image(directory, f"{each['platform']['os']}/{each['platform']['architecture']}", each) for each in listed]


def damaged(directory: Path) -> list[str]:
    """Return the digests of blobs that are missing, damaged, or that no image names."""
    named = {index_of(directory)["digest"]}
    for image in images(directory):
        manifest = image.manifest
        named |= {image.digest, manifest["config"]["digest"], *(layer["digest"] for layer in manifest["layers"])}
    there = {f"sha256:{path.name}": path for path in (directory / "blobs" / "sha256").iterdir()}
    wrong = {digest for digest, path in there.items() if digest != f"sha256:{_hash(path)}"}
    return sorted(named ^ there.keys() | wrong)


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
