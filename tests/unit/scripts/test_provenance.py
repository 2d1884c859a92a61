"""Provenance: who built what from what."""

import pytest
from releasing import provenance
from releasing.build import builder, pinned_base

BUILD = provenance.Build(
    version="1.2.3",
    dockerfile="Dockerfile.csi",
    source="https://forge.test/team/gkm",
    revision="c" * 40,
    base=f"python:3.11-slim-bookworm@sha256:{'b' * 64}",
    started="2026-01-02T03:04:05Z",
    finished="2026-01-02T03:05:05Z",
    inputs={"requirements/csi.lock": "d" * 64},
)


def test_a_statement_names_the_image_the_commit_the_base_and_the_locks() -> None:
    made = provenance.statement({"gkm-csi": f"sha256:{'a' * 64}"}, BUILD)
    assert made["_type"] == "https://in-toto.io/Statement/v1"
    assert made["predicateType"] == "https://slsa.dev/provenance/v1"
    assert made["subject"] == [{"name": "gkm-csi", "digest": {"sha256": "a" * 64}}]
    definition = made["predicate"]["buildDefinition"]
    assert definition["externalParameters"]["revision"] == "c" * 40
    assert definition["resolvedDependencies"] == [
        {"uri": "git+https://forge.test/team/gkm", "digest": {"gitCommit": "c" * 40}},
        {"uri": "pkg:docker/python@3.11-slim-bookworm", "digest": {"sha256": "b" * 64}},
        {"uri": "file:requirements/csi.lock", "digest": {"sha256": "d" * 64}},
    ]


def test_a_run_of_a_pipeline_is_named() -> None:
    environment = {
        "GITHUB_SERVER_URL": "https://forge.test",
        "GITHUB_REPOSITORY": "team/gkm",
        "GITHUB_WORKFLOW_REF": "team/gkm/.github/workflows/release.yml@refs/tags/v1.2.3",
        "GITHUB_RUN_ID": "7",
    }
    assert builder(environment) == (
        "https://forge.test/team/gkm",
        "https://forge.test/team/gkm/.github/workflows/release.yml@refs/tags/v1.2.3",
        "https://forge.test/team/gkm/actions/runs/7/attempts/1",
    )


@pytest.mark.parametrize(
    ("environment", "source"), [({}, ""), ({"SOURCE": "https://x.test/gkm"}, "https://x.test/gkm")]
)
def test_a_build_elsewhere_claims_no_builder(environment: dict[str, str], source: str) -> None:
    assert builder(environment) == (source, "", "")


def test_the_base_is_that_of_the_dockerfiles() -> None:
    assert pinned_base().startswith("python:3.11-slim-bookworm@sha256:")
