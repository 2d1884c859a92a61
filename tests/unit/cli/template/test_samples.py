"""The samples that ship render to what their comments say; tests/partners creates them on a real API server."""

from pathlib import Path

import pytest
from support.cli.template_files import SAMPLES, render_sample, rendered


@pytest.mark.parametrize(
    ("sample", "config", "expected"),
    [
        (
            "compute-domain",
            "",
            [
                ("ComputeDomain", "compute-domain-0b1f6a52-7d1c-4c56-8a86-5a1e9f0d2c77"),
                ("ConfigMap", "settings-0b1f6a52-7d1c-4c56-8a86-5a1e9f0d2c77"),
            ],
        ),
        (
            "reverse-proxy",
            "",
            [
                ("ConfigMap", "proxy-2f0e4d3c-9b8a-4765-8e5f-1a2b3c4d5e6f"),
                ("Service", "proxy-serve"),
                ("Deployment", "proxy-2f0e4d3c-9b8a-4765-8e5f-1a2b3c4d5e6f"),
            ],
        ),
        (
            "ca-certificates",
            "taskGroups: {allowedKinds: [{kind: Secret}]}",
            [("Secret", "ca-7a6b5c4d-3e2f-4190-8a7b-6c5d4e3f2a1b")],
        ),
        ("pod-group", "", [("PodGroup", "reduce")]),
    ],
)
def test_a_sample_renders(sample: str, config: str, expected: list[tuple[str, str]], tmp_path: Path) -> None:
    config_file = tmp_path / "config.yaml"
    config_file.write_text(config, encoding="utf-8")
    options = ("--config", config_file) if config else ()
    objects = rendered(render_sample(sample, *options, "-o", "json"))
    assert [(each["kind"], each["metadata"]["name"]) for each in objects] == expected


def test_no_sample_is_forgotten() -> None:
    named = {"compute-domain", "reverse-proxy", "ca-certificates", "pod-group"}
    assert {path.stem for path in SAMPLES.iterdir()} == named


def test_a_secret_is_refused_unless_the_configuration_names_it() -> None:
    done = render_sample("ca-certificates")
    assert (done.returncode, done.stdout) == (3, "")
    assert "the kind 'Secret' is not allowed" in done.stderr


def test_the_proxy_has_one_server_for_each_task() -> None:
    settings = rendered(render_sample("reverse-proxy", "-o", "json"))[0]["data"]["default.conf"]
    assert "  server replica-0.chat-7:8080;\n  server replica-1.chat-7:8080;\n}" in settings


def test_a_pod_group_counts_the_tasks_and_takes_what_the_second_template_changes() -> None:
    (group,) = rendered(render_sample("pod-group", "-o", "json"))
    assert group["spec"] == {"minMember": 3, "queue": "urgent", "priorityClassName": "high-priority"}
