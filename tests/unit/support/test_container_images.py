"""Images of our own: what is in them, and the same bytes every time."""

import io
import json
import tarfile

from support.node.container_images import File, Files, Link, docker_archive

FILES: Files = {"bin/tool": File(b"#!/bin/sh\n", 0o755), "bin/alias": Link("tool"), "tmp/x": b"", "a/b/c": b"deep"}


def layer() -> tarfile.TarFile:
    with tarfile.open(fileobj=io.BytesIO(docker_archive("localhost/x:1", FILES))) as archive:
        member = archive.extractfile("layer.tar")
        assert member
        return tarfile.open(fileobj=io.BytesIO(member.read()))


def test_the_archive_names_the_image() -> None:
    with tarfile.open(fileobj=io.BytesIO(docker_archive("localhost/x:1", FILES))) as archive:
        member = archive.extractfile("manifest.json")
        assert member
        assert json.load(member)[0]["RepoTags"] == ["localhost/x:1"]


def test_every_directory_comes_before_what_is_in_it() -> None:
    with layer() as archive:
        assert archive.getnames() == ["a", "a/b", "a/b/c", "bin", "bin/alias", "bin/tool", "tmp", "tmp/x"]


def test_modes_and_links_are_preserved() -> None:
    with layer() as archive:
        assert (archive.getmember("bin/tool").mode, archive.getmember("bin/alias").linkname) == (0o755, "tool")
        assert archive.getmember("tmp").mode == 0o1777


def test_the_same_files_are_the_same_bytes() -> None:
    turned = dict(reversed(list(FILES.items())))
    assert docker_archive("localhost/x:1", FILES) == docker_archive("localhost/x:1", turned)
