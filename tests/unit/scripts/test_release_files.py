"""A release whose parts do not agree is found, whatever part it is."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from releasing import contents, files, layout, manifests, sbom
from support.releases.release_files import (
    BASE,
    COMMIT,
    PLATFORMS,
    VERSION,
    built,
    built_from,
    manifests_of,
    put,
    release_of,
)


@pytest.fixture
def release(tmp_path: Path) -> Path:
    """A whole release of one image."""
    return release_of(tmp_path)


def problems(release: Path, version: str = VERSION, base: str = BASE, *platforms: str) -> list[str]:
    return list(files.problems(release, files.Expected(version, release.parent, base, frozenset(platforms))))


def test_a_whole_release_has_no_problem(release: Path) -> None:
    assert problems(release) == []


def test_both_platforms_are_in_one_index(release: Path) -> None:
    found = layout.images(release / files.IMAGES / "gkm-csi")
    assert [image.platform for image in found] == ["linux/amd64", "linux/arm64"]
    assert [each.name for each in contents.installed(found[0])[0]] == ["gkm", "urllib3"]
    assert layout.index_of(release / files.IMAGES / "gkm-csi")["annotations"] == {layout.REF_NAME: VERSION}


def append(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b" ")


def a_blob(release: Path) -> Path:
    return next(iter(sorted((release / files.IMAGES / "gkm-csi" / "blobs" / "sha256").iterdir())))


def rebuilt(release: Path, urllib3: str) -> None:
    path = release / files.IMAGES / "gkm-csi"
    shutil.rmtree(path)
    built(path, urllib3=urllib3)


def swapped(release: Path) -> None:
    first, second = (release / files.sbom_file("gkm-csi", f"linux/{each}") for each in PLATFORMS)
    shutil.copy(first, second)


FAULTS: dict[str, tuple[Callable[[Path], object], str]] = {
    "chart": (lambda at: append(at / f"gkm-{VERSION}.tgz"), "SHA256SUMS: gkm-1.2.3.tgz differs"),
    "manifests of another version": (
        lambda at: manifests.pack(at, VERSION, manifests_of("1.2.2")),
        "install.yaml names other images than those of 1.2.3",
    ),
    "another archive of manifests": (
        lambda at: (at / manifests.INSTALL).write_text(manifests_of(VERSION)[Path("install.yaml")] + "\n"),
        "gkm-manifests-1.2.3.tgz differs from install.yaml",
    ),
    "no changes": (lambda at: (at / files.CHANGES).write_text(""), "CHANGELOG.md is empty"),
    "extra": (lambda at: (at / "extra").write_text("x"), "SHA256SUMS: extra differs"),
    "blob": (lambda at: append(a_blob(at)), "is missing, damaged or unused"),
    "unused blob": (
        lambda at: put(at / files.IMAGES / "gkm-csi", b"unused", ""),
        "is missing, damaged or unused",
    ),
    "sbom of another platform": (swapped, "gkm-csi linux/arm64: the SBOM is of another image"),
    "not locked": (lambda at: rebuilt(at, "6.6.6"), "installed and not locked: urllib3 6.6.6"),
}


@pytest.mark.parametrize(("plant", "message"), FAULTS.values(), ids=FAULTS)
def test_a_fault_is_found(release: Path, plant: Callable[[Path], object], message: str) -> None:
    plant(release)
    assert any(message in found for found in problems(release))


def test_checksums_that_fit_do_not_hide_other_provenance(release: Path) -> None:
    path = release / files.provenance_file("gkm-csi")
    path.write_text(
        path.read_text().replace(layout.index_of(release / files.IMAGES / "gkm-csi")["digest"][7:], "0" * 64)
    )
    files.write_checksums(release)
    assert problems(release) == ["gkm-csi: the provenance is about other images"]


def test_checksums_that_fit_do_not_hide_other_digests(release: Path) -> None:
    (release / files.DIGESTS).write_text('{"image": {"digests": {"csi": "sha256:0"}}}')
    files.write_checksums(release)
    assert problems(release) == ["values-digests.json names other images"]


def test_another_version_is_found_in_chart_and_labels(release: Path) -> None:
    for name in ("gkm", "gkm-manifests"):
        (release / f"{name}-{VERSION}.tgz").rename(release / f"{name}-2.0.0.tgz")
    files.write_checksums(release)
    found = problems(release, "2.0.0")
    assert any("is of version 1.2.3" in text for text in found)
    assert any("its labels state another version" in text for text in found)


@pytest.mark.parametrize(
    ("revision", "base", "message"),
    [
        (f"{COMMIT}-dirty", BASE, f"it is of '{COMMIT}-dirty', which is no commit"),
        (COMMIT, "localhost/gkm-base:local", f"its base is another one than {BASE}"),
    ],
)
def test_a_trial_is_no_release(release: Path, revision: str, base: str, message: str) -> None:
    path = release / files.IMAGES / "gkm-csi"
    shutil.rmtree(path)
    built(path, revision=revision)
    subjects = {image.platform: image.digest for image in layout.images(path)}
    built_from(release, subjects | {"gkm-csi": layout.index_of(path)["digest"]}, revision, base)
    for image in layout.images(path):
        about = sbom.Subject("gkm-csi", VERSION, image.platform, image.digest, base, "", "")
        document = sbom.document(about, *contents.installed(image))
        files.write_json(release / files.sbom_file("gkm-csi", image.platform), document)
    files.write_digests(release)
    files.write_checksums(release)
    assert problems(release) == [f"gkm-csi is of a trial: {message}"]
    assert problems(release, base="") == []


def test_labels_and_provenance_name_one_revision(release: Path) -> None:
    path = release / files.IMAGES / "gkm-csi"
    subjects = {image.platform: image.digest for image in layout.images(path)}
    built_from(release, subjects | {"gkm-csi": layout.index_of(path)["digest"]}, "d" * 40)
    files.write_checksums(release)
    assert problems(release) == [
        f"gkm-csi linux/{each}: its labels state another revision than the provenance" for each in PLATFORMS
    ]


def test_each_process_is_of_all_platforms(release: Path) -> None:
    assert problems(release, VERSION, BASE, "linux/amd64", "linux/arm64") == []
    found = problems(release, VERSION, BASE, "linux/amd64", "linux/riscv64")
    assert found == ["gkm-csi is not of the same platforms: linux/arm64, linux/riscv64"]
