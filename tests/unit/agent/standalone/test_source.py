"""Caches from a directory of manifests, and the directory that says how they stand."""

import os
from pathlib import Path
from threading import Event

import pytest
from gkm.api.nodes import GPUGroup, NodeCacheStatus, NodeStatus
from gkm.hoststate.names import CacheRef
from gkm_agent.caches.model import WantedCache
from gkm_agent.interfaces import NotWritten
from gkm_agent.standalone.sinks import FileStatusSink
from gkm_agent.standalone.source import BadManifest, FileSource, manifests_in
from support.host.descriptors_used_up import descriptors_used_up

CACHE = """
apiVersion: gkm.io/v1alpha1
kind: GKMCache
metadata: {name: llama, namespace: ml-apps, labels: {team: a}}
spec: {image: registry.example/team/cache:1}
"""
CLUSTER_CACHE = CACHE.replace("GKMCache", "ClusterGKMCache").replace(", namespace: ml-apps", "")
LLAMA = WantedCache(CacheRef("ml-apps", "llama"), "registry.example/team/cache:1")


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path


def source_of(directory: Path) -> FileSource:
    source = FileSource(directory, Event())
    source.scan()
    return source


def test_one_file_may_hold_several_caches_of_both_kinds() -> None:
    assert manifests_in(f"{CACHE}---\n{CLUSTER_CACHE}---\n".encode()).caches == (
        LLAMA,
        WantedCache(CacheRef(None, "llama"), "registry.example/team/cache:1"),
    )


def test_a_cache_without_a_namespace_is_in_the_default_one() -> None:
    (cache,) = manifests_in(CACHE.replace(", namespace: ml-apps", "").encode()).caches

    assert cache.ref == CacheRef("default", "llama")


def test_json_is_yaml_and_an_empty_file_holds_nothing() -> None:
    assert manifests_in(b"").caches == ()
    assert manifests_in(
        b'{"apiVersion": "gkm.io/v1alpha1", "kind": "GKMCache", "metadata": {"name": "llama", "namespace": "ml-apps"},'
        b' "spec": {"image": "registry.example/team/cache:1"}}'
    ).caches == (LLAMA,)


def test_fields_that_the_api_server_adds_are_ignored() -> None:
    exported = CACHE.replace("labels: {team: a}", "creationTimestamp: 2026-01-01T00:00:00Z, managedFields: [{a: b}]")

    assert manifests_in(exported.encode()).caches == (LLAMA,)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", "not YAML"),
        ("- a list", "document 1"),
        ("kind: Pod", "Pod"),
        (CACHE.replace("v1alpha1", "v9"), "apiVersion"),
        (CACHE.replace("llama", "../../etc"), "../../etc"),
        (CACHE.replace("llama", "Llama"), "Llama"),
        (CACHE.replace("ml-apps", "_cluster-scoped"), "_cluster-scoped"),
        (CACHE.replace("{name: llama, namespace: ml-apps, labels: {team: a}}", "{namespace: a}"), "''"),
        (CACHE.replace("image:", "imag:"), "image"),
        (CACHE.replace("registry.example/team/cache:1", "'a b'"), "image"),
        (CACHE.replace("registry.example/team/cache:1", "[1]"), "image"),
        (CACHE + "---\nkind: Pod", "document 2"),
        ("a: &a [x, x]\nb: [*a, *a]", "aliases"),
        ("!!python/object/apply:os.system [id]", "not YAML"),
        ("---\n{}\n" * 1001, "document 1"),
        ("[" * 5000, "not YAML"),
        ("\x00", "not YAML"),
    ],
)
def test_a_document_that_is_no_cache_is_refused_with_its_number(text: str, complaint: str) -> None:
    with pytest.raises(BadManifest, match=f".*{complaint.replace('.', '[.]')}"):
        manifests_in(text.encode())


def test_bytes_that_are_no_text_are_refused() -> None:
    with pytest.raises(BadManifest, match="not YAML: unacceptable character"):
        manifests_in(b"\xff\xfe\x00\xd8")


def test_files_come_and_go(directory: Path) -> None:
    changed = Event()
    source = FileSource(directory, changed)
    source.scan()
    assert (source.caches(), source.synced) == ([], True)
    (directory / "a.yaml").write_text(CACHE)
    changed.clear()
    source.scan()
    assert (source.caches(), changed.is_set()) == ([LLAMA], True)
    changed.clear()
    source.scan()
    assert not changed.is_set()
    (directory / "a.yaml").unlink()
    source.scan()
    assert (source.caches(), changed.is_set()) == ([], True)


def test_a_file_that_becomes_unreadable_counts_as_its_last_version(
    directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (directory / "a.yaml").write_text(CACHE)
    source = source_of(directory)
    (directory / "a.yaml").write_text("apiVers")
    source.scan()

    assert source.caches() == [LLAMA]
    assert source.synced
    assert [vars(line)["file"] for line in caplog.records if line.message.startswith("cache manifest unreadable")] == [
        "a.yaml"
    ]


def test_a_manifest_that_cannot_be_read_now_is_read_by_the_next_scan(
    directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (directory / "a.yaml").write_text(CACHE)
    source = FileSource(directory, Event())
    with descriptors_used_up(directory / "a.yaml"):
        source.scan()
        source.scan()
    assert (source.caches(), source.synced) == ([], False)
    assert len(caplog.records) == 1, "a line every two seconds, as long as the file cannot be read"
    source.scan()
    assert (source.caches(), source.synced) == ([LLAMA], True), "its cache is unknown until the file changes"


def test_a_file_that_never_was_good_leaves_the_source_incomplete(directory: Path) -> None:
    (directory / "a.yaml").write_text(CACHE)
    (directory / "b.yaml").write_text("{")
    source = source_of(directory)

    assert source.caches() == [LLAMA]
    assert not source.synced
    (directory / "b.yaml").unlink()
    source.scan()
    assert source.synced


def test_a_link_that_leads_nowhere_hides_no_other_manifest(directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    (directory / "llama.yaml").write_text(CACHE)
    (directory / "loop.yaml").symlink_to("loop.yaml")
    source = source_of(directory)
    assert source.caches() == [LLAMA], "one link that cannot be followed keeps all manifests from the agent"
    assert not source.synced
    assert [vars(line).get("file") for line in caplog.records] == ["loop.yaml"]
    (directory / "loop.yaml").unlink()
    source.scan()
    assert source.synced


def test_of_two_manifests_for_one_cache_the_first_counts(directory: Path) -> None:
    (directory / "b.yaml").write_text(CACHE.replace("cache:1", "cache:2"))
    (directory / "a.yaml").write_text(CACHE + "---" + CACHE.replace("cache:1", "cache:3"))

    assert [cache.image for cache in source_of(directory).caches()] == ["registry.example/team/cache:1"]


def test_only_manifests_are_read(directory: Path) -> None:
    (directory / "README.md").write_text("nothing")
    (directory / ".hidden.yaml").write_text("{")
    (directory / "directory.yaml").mkdir()
    os.mkfifo(directory / "pipe.yaml")
    (directory / "dangling.yaml").symlink_to("nowhere")

    source = source_of(directory)

    assert (source.caches(), source.synced) == ([], True)


def test_links_are_followed_as_mounted_configuration_has_them(directory: Path) -> None:
    (directory / "..data").mkdir()
    (directory / "..data" / "a.yaml").write_text(CACHE)
    (directory / "a.yaml").symlink_to("..data/a.yaml")

    assert source_of(directory).caches() == [LLAMA]


def test_a_file_beyond_all_measure_is_not_read(directory: Path) -> None:
    (directory / "a.yaml").write_text(CACHE + "#" * (1 << 20))

    source = source_of(directory)

    assert (source.caches(), source.synced) == ([], False)


def test_before_its_directory_is_there_an_agent_has_observed_no_caches(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source = FileSource(tmp_path / "mounted-later", Event())
    for _ in range(3):
        source.scan()
    assert len(caplog.records) == 1, "a line every two seconds, as long as the directory is not there"
    assert not source.wait(0), "/readyz reports an agent that has not seen its caches as ready"
    (tmp_path / "mounted-later").mkdir()
    source.scan()
    assert source.wait(0)
    (tmp_path / "mounted-later").rmdir()
    source.scan()
    assert source.wait(0)


def test_a_directory_that_disappears_deletes_nothing(directory: Path) -> None:
    place = directory / "manifests"
    place.mkdir()
    (place / "a.yaml").write_text(CACHE)
    source = source_of(place)
    (place / "a.yaml").unlink()
    place.rmdir()
    source.scan()

    assert source.caches() == [LLAMA]
    assert not source.synced


STATUS = NodeStatus(gpus=[GPUGroup(ids=[0], arch="90")], caches={"llama": NodeCacheStatus(state="Ready")})


def test_a_node_object_is_written_once_while_nothing_changes(directory: Path) -> None:
    sink = FileStatusSink(directory, "node-1")
    sink.publish("ml-apps", STATUS)
    path = directory / "ml-apps" / "node-1.yaml"
    written = path.stat().st_mtime_ns, path.stat().st_ino

    sink.publish("ml-apps", STATUS)

    assert (path.stat().st_mtime_ns, path.stat().st_ino) == written
    assert sink.scopes() == {"ml-apps"}


def test_a_node_object_that_cannot_be_read_now_keeps_the_times_of_its_conditions(directory: Path) -> None:
    sink = FileStatusSink(directory, "node-1")
    sink.publish("ml-apps", STATUS)
    path = directory / "ml-apps" / "node-1.yaml"
    written = path.stat().st_ino
    with descriptors_used_up(path), pytest.raises(NotWritten, match="Too many open files"):
        sink.publish("ml-apps", STATUS)
    assert path.stat().st_ino == written, "a node that was Ready for days becomes Ready now"


def test_node_objects_of_both_scopes_are_found_and_removed(directory: Path) -> None:
    sink = FileStatusSink(directory, "node-1")
    (directory / "Not a namespace").mkdir()
    (directory / "Not a namespace" / "node-1.yaml").write_text("")
    for scope in ("ml-apps", None):
        sink.publish(scope, STATUS)

    assert sink.scopes() == {"ml-apps", None}
    for scope in ("ml-apps", None, "never-there"):
        sink.remove(scope)
    assert sink.scopes() == set()
    assert not (directory / "ml-apps").exists()


def test_a_spoilt_node_object_is_written_anew(directory: Path) -> None:
    sink = FileStatusSink(directory, "node-1")
    sink.publish("ml-apps", STATUS)
    path = directory / "ml-apps" / "node-1.yaml"
    path.write_text("{")

    sink.publish("ml-apps", STATUS)

    assert "Ready" in path.read_text()


def test_an_unwritable_directory_is_reported(directory: Path) -> None:
    (directory / "ml-apps").write_text("a file")

    with pytest.raises(NotWritten, match=r"ml-apps.*: File exists"):
        FileStatusSink(directory, "node-1").publish("ml-apps", STATUS)
