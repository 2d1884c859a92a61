"""Any file causes a tree, findings, or an error of one line: never a traceback."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.examples import examples
from support.topology.clusters import SURVEY, labeled, surveyed_cluster, topology, written

OPTIONS = ("--nodes", "--fabrics", "--ibnetdiscover", "--ufm", "--lldp", "--tree-file", "--config")
FORMS = ("tree", "json", "hypernodes", "kueue")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Path:
    nodes, _ = surveyed_cluster(tmp_path_factory.mktemp("hostile"))
    return nodes


def answered(*arguments: object) -> None:
    done = topology(*arguments)
    assert done.returncode in (0, 1, 2, 3)
    if done.returncode in (1, 2):
        assert done.stdout == ""
        assert done.stderr.startswith("error: ")
        assert done.stderr.count("\n") == 1
    else:
        assert done.stdout
    assert all(line.isprintable() for line in (done.stdout + done.stderr).splitlines())


@settings(max_examples=examples(120))
@given(
    raw=st.binary(max_size=60) | st.text('{}[]":,-# \n\x1babN01', max_size=60).map(str.encode),
    option=st.sampled_from(OPTIONS),
)
def test_any_bytes_for_any_option(cluster: Path, raw: bytes, option: str) -> None:
    path = cluster.with_name("any")
    path.write_bytes(raw)
    answered("build", "--nodes", cluster, option, path)
    answered("show", "--nodes", cluster, option, path, "-o", "svg")
    if option in ("--nodes", "--config"):
        answered("check", "--nodes", cluster, option, path)


@settings(max_examples=examples(25))
@given(at=st.integers(0, 300_000), junk=st.binary(min_size=1, max_size=40), form=st.sampled_from(FORMS))
def test_any_damage_to_a_survey(cluster: Path, at: int, junk: bytes, form: str) -> None:
    text = SURVEY.read_bytes()
    path = cluster.with_name("survey")
    at %= len(text)
    path.write_bytes(text[:at] + junk + text[at + len(junk) :])
    answered("build", "--nodes", cluster, "--ibnetdiscover", path, "-o", form)


@settings(max_examples=examples(80))
@given(labels=st.dictionaries(st.sampled_from(["block", "rack", "cluster", "fabric.domain"]), st.text(max_size=70)))
def test_any_labels(tmp_path_factory: pytest.TempPathFactory, labels: dict[str, str]) -> None:
    directory = tmp_path_factory.mktemp("labels")
    node = labeled("gpu-0")
    node["metadata"]["labels"] |= {key: value.encode(errors="replace").decode() for key, value in labels.items()}
    nodes = written(directory / "nodes.json", node, labeled("gpu-1", block="b1"))
    for arguments in (("build",), ("build", "-o", "hypernodes"), ("show",), ("show", "-o", "svg"), ("check",)):
        answered(arguments[0], "--nodes", nodes, *arguments[1:])
    done = topology("check", "--nodes", nodes, "-o", "commands")
    assert all(line.isprintable() for line in done.stdout.splitlines())
