"""Providers that read a file: a change of the file becomes a snapshot; what is no readable file is a fault."""

import json
import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from gkm.topology.providers import Action, Event, ProviderFailed, Reply
from gkm_operator.hypernodes.providers import tree_file
from support.topology.provider_run import ProviderRun


def tree(*nodes: str) -> str:
    return json.dumps({"domains": [{"name": "leaf", "level": "block", "nodes": nodes}]})


def reads(file: Path) -> AbstractContextManager[ProviderRun]:
    return ProviderRun.of(tree_file.provider({"file": str(file), "intervalSeconds": 0.1}, {}))


def is_snapshot(event: Event) -> bool:
    return event.action is Action.SNAPSHOT


def nodes_of(event: Event) -> list[str]:
    return [member.name for each in event.hypernodes for member in each.members]


def test_a_changed_file_is_a_snapshot(tmp_path: Path) -> None:
    file = tmp_path / "tree"
    file.write_text(tree("n1"))
    with reads(file) as run:
        assert nodes_of(run.next()) == ["n1"]
        assert run.next() == Event(Action.UPDATE, ())
        # In one step: a file that is written in place can be read half written.
        (tmp_path / "new").write_text(tree("n1", "n2"))
        (tmp_path / "new").replace(file)
        assert nodes_of(run.next(is_snapshot)) == ["n1", "n2"]


def test_the_links_of_a_mounted_configmap_are_followed_anew(tmp_path: Path) -> None:
    for version, node in (("v1", "n1"), ("v2", "n2")):
        (tmp_path / version).mkdir()
        (tmp_path / version / "tree").write_text(tree(node))
    (tmp_path / "..data").symlink_to("v1")
    (tmp_path / "tree").symlink_to("..data/tree")
    with reads(tmp_path / "tree") as run:
        assert nodes_of(run.next()) == ["n1"]
        (tmp_path / "..new").symlink_to("v2")
        (tmp_path / "..new").replace(tmp_path / "..data")
        assert nodes_of(run.next(is_snapshot)) == ["n2"]


def test_a_refused_snapshot_is_sent_again(tmp_path: Path) -> None:
    file = tmp_path / "tree"
    file.write_text(tree("n1"))
    with reads(file) as run:
        run.next(is_snapshot)
        run.reply(Reply("", "not written"))
        assert nodes_of(run.next(is_snapshot)) == ["n1"]


@pytest.mark.parametrize(
    ("make", "shown"),
    [
        (lambda _: None, "No such file or directory"),
        (lambda file: file.mkdir(), "not a regular file"),
        (os.mkfifo, "not a regular file"),
        (lambda file: file.write_bytes(b" " * 1001), "larger than 1000 bytes"),
    ],
    ids=["none", "directory", "pipe", "large"],
)
def test_what_is_no_readable_file_is_a_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path], object], shown: str
) -> None:
    monkeypatch.setattr(tree_file, "MAX_FILE_BYTES", 1000)
    make(tmp_path / "tree")
    with reads(tmp_path / "tree") as run:
        failure = run.failure()
    assert isinstance(failure, ProviderFailed)
    assert shown in str(failure)


def test_what_is_no_tree_is_a_fault_without_content(tmp_path: Path) -> None:
    (tmp_path / "tree").write_text('{"domains": "MT1234X00001"}')
    with reads(tmp_path / "tree") as run:
        failure = str(run.failure())
    assert failure.startswith("cannot read its file: the file has another shape")
    assert "MT1234X00001" not in failure


def test_a_file_must_be_named() -> None:
    with pytest.raises(ProviderFailed, match="has an invalid config"):
        tree_file.provider({}, {})
