"""Makes the files of a release of one image, as `make release` does, without building anything."""

import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any

from releasing import contents, files, layout, manifests, provenance, sbom

VERSION = "1.2.3"
METADATA = "opt/gkm/lib/python3.11/site-packages/{0}-{1}.dist-info/METADATA"
STATUS = "Package: libc6\nStatus: install ok installed\nArchitecture: amd64\nVersion: 2.36\n"
LABEL, COMMIT, BASE = "org.opencontainers.image", "c" * 40, f"python:3.11-slim@sha256:{'b' * 64}"
PLATFORMS = ("amd64", "arm64")


def archive(members: dict[str, str]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as opened:
        for name, text in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text.encode())
            opened.addfile(entry, io.BytesIO(text.encode()))
    return buffer.getvalue()


def put(directory: Path, content: bytes, media_type: str) -> dict[str, Any]:
    digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
    path = layout.blob_path(directory, digest)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return {"mediaType": media_type, "digest": digest, "size": len(content)}


def built(directory: Path, version: str = VERSION, urllib3: str = "2.8.0", revision: str = COMMIT) -> None:
    """Make a layout as buildah does, with one image for each platform, and join them."""
    entries = []
    for architecture in PLATFORMS:
        members = {"var/lib/dpkg/status": STATUS}
        for name, installed in (("gkm", version), ("urllib3", urllib3)):
            members[METADATA.format(name, installed)] = f"Name: {name}\nVersion: {installed}\n"
        labels = {f"{LABEL}.version": version, f"{LABEL}.revision": revision}
        config = {"architecture": architecture, "os": "linux", "config": {"Labels": labels}}
        manifest = {
            "config": put(directory, json.dumps(config).encode(), "application/vnd.oci.image.config.v1+json"),
            "layers": [put(directory, archive(members), "application/vnd.oci.image.layer.v1.tar+gzip")],
        }
        entry = put(directory, json.dumps(manifest).encode(), "application/vnd.oci.image.manifest.v1+json")
        entries.append(entry | {"annotations": {layout.REF_NAME: f"linux/{architecture}"}})
    (directory / "index.json").write_text(json.dumps({"manifests": entries}))
    layout.join(directory, version)


def built_from(directory: Path, subjects: dict[str, str], revision: str = COMMIT, base: str = BASE) -> None:
    build = provenance.Build(VERSION, "Dockerfile.csi", "", revision, base, "", "")
    files.write_json(directory / files.provenance_file("gkm-csi"), provenance.statement(subjects, build))


def manifests_of(version: str) -> dict[Path, str]:
    """Return manifests that name the images of a version."""
    text = "".join(f"      - image: gkm-{process}:{version}\n" for process in ("agent", "csi", "operator"))
    return {Path("install.yaml"): text, Path("base/agent.yaml"): text}


def release_of(base: Path) -> Path:
    """Make a whole release of one image, and its lock beside it."""
    directory = base / "release"
    path = directory / files.IMAGES / "gkm-csi"
    built(path)
    (base / "csi.lock").write_text("urllib3==2.8.0 \\\n    --hash=sha256:0\n")
    (directory / files.CHANGES).write_text("- new\n")
    chart = {"gkm/Chart.yaml": f"version: {VERSION}\nappVersion: {VERSION}\n", "gkm/crds/a.yaml": "{}"}
    (directory / f"gkm-{VERSION}.tgz").write_bytes(archive(chart))
    manifests.pack(directory, VERSION, manifests_of(VERSION))
    subjects = {"gkm-csi": layout.index_of(path)["digest"]}
    for image in layout.images(path):
        about = sbom.Subject("gkm-csi", VERSION, image.platform, image.digest, "base", "", "2026-01-02T03:04:05Z")
        document = sbom.document(about, *contents.installed(image))
        files.write_json(directory / files.sbom_file("gkm-csi", image.platform), document)
        subjects[image.platform] = image.digest
    built_from(directory, subjects)
    files.write_digests(directory)
    files.write_checksums(directory)
    return directory
