"""The command line and its twins in the environment."""

import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from gkm.api.config import ConfigInvalid, load
from gkm.hoststate.logs import configure as start_logs
from gkm.hoststate.logs import fields
from gkm_agent import options


def test_every_flag_has_a_twin_in_the_environment() -> None:
    by_flag = options.parse(
        ["--static", "m", "--state", "s", "--run", "r", "--node", "n", "--config", "c", "--status", "t", "--once",
         "--gpu-seconds", "5", "--log-level", "debug", "--health", "127.0.0.1:8081"],
        {},
    )  # fmt: skip
    by_environment = options.parse(
        [],
        {"GKM_STATIC": "m", "GKM_STATE": "s", "GKM_RUN": "r", "GKM_NODE": "n", "GKM_CONFIG": "c", "GKM_STATUS": "t",
         "GKM_ONCE": "true", "GKM_GPU_SECONDS": "5", "GKM_LOG_LEVEL": "debug",
         "GKM_HEALTH": "127.0.0.1:8081"},
    )  # fmt: skip

    assert by_flag == by_environment
    assert by_flag.layout.store == Path("s/store/sha256")


def test_a_flag_wins_over_its_twin() -> None:
    chosen = options.parse(["--static", "m", "--node", "n", "--log-level", "error"], {"GKM_LOG_LEVEL": "debug"})

    assert chosen.log_level == "error"


def test_several_files_in_kubeconfig_are_left_to_the_client_that_reads_them() -> None:
    assert options.parse(["--node", "n"], {"KUBECONFIG": "/a:/b"}).kubeconfig is None


def test_the_help_names_every_twin(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        options.parse(["--help"], {})

    assert ended.value.code == 0
    shown = capsys.readouterr().out
    for twin in ("STATIC", "STATUS", "ONCE", "CONFIG", "STATE", "RUN", "NODE", "GPU_SECONDS", "LOG_LEVEL", "HEALTH"):
        assert f"GKM_{twin}" in shown
    assert "[KUBECONFIG" in shown


@pytest.mark.parametrize("seconds", ["0", "0.99", "-60", "nan", "inf", "-inf", "1e9", "soon", "0x10"])
@pytest.mark.parametrize("by_flag", [True, False])
def test_readings_of_gpus_come_neither_without_pause_nor_never(
    seconds: str, *, by_flag: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments, environment = ([f"--gpu-seconds={seconds}"], {}) if by_flag else ([], {"GKM_GPU_SECONDS": seconds})

    with pytest.raises(SystemExit) as ended:
        options.parse(["--static", "m", "--node", "n", *arguments], environment)

    assert ended.value.code == 2
    assert f"--gpu-seconds: '{seconds}' is not a number of seconds from 1 to 86400" in capsys.readouterr().err


@pytest.mark.parametrize("by_flag", [True, False])
def test_a_level_that_logging_does_not_have_is_refused(*, by_flag: bool, capsys: pytest.CaptureFixture[str]) -> None:
    arguments, environment = (["--log-level", "loud"], {}) if by_flag else ([], {"GKM_LOG_LEVEL": "loud"})

    with pytest.raises(SystemExit) as ended:
        options.parse(["--static", "m", "--node", "n", *arguments], environment)

    assert ended.value.code == 2
    assert "--log-level: 'loud' is not one of debug, info, warning, error" in capsys.readouterr().err


@pytest.mark.parametrize("by_flag", [True, False])
def test_health_is_served_on_an_address_and_on_nothing_else(
    *, by_flag: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    def parsed(text: str) -> tuple[str, int] | None:
        arguments, environment = ([f"--health={text}"], {}) if by_flag else ([], {"GKM_HEALTH": text})
        return options.parse(["--static", "m", "--node", "n", *arguments], environment).health

    assert parsed(":8081") == ("", 8081)
    assert options.parse(["--static", "m", "--node", "n"], {}).health is None
    with pytest.raises(SystemExit) as ended:
        parsed("localhost:8081")
    assert ended.value.code == 2
    assert "--health: 'localhost:8081': 'localhost' is not an IP address" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "complaint"), [(None, "No such file"), ("x" * (5 << 20), "larger than"), ("a: [", "")]
)
def test_a_configuration_that_cannot_be_used_is_named(tmp_path: Path, content: str | None, complaint: str) -> None:
    path = tmp_path / "config.yaml"
    if content is not None:
        path.write_text(content)

    with pytest.raises(ConfigInvalid, match=f"configuration {path}: .*{complaint}"):
        load(path)


def test_a_configuration_may_be_a_link_as_in_a_mounted_configmap(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("verification: {mode: warn}")
    (tmp_path / "config.yaml").symlink_to("data")

    assert load(tmp_path / "config.yaml").verification.mode == "warn"


def test_node_objects_go_beside_the_manifests(tmp_path: Path) -> None:
    assert options.parse(["--static", str(tmp_path / "m"), "--node", "n"], {}).status == tmp_path / "nodes"


def test_the_machine_is_named_after_itself_only_without_kubernetes(capsys: pytest.CaptureFixture[str]) -> None:
    assert options.parse(["--static", "m"], {}).node
    with pytest.raises(SystemExit) as ended:
        options.parse([], {})
    assert ended.value.code == 2
    assert "--node (or GKM_NODE) is required in Kubernetes" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["../x", "Node", "a b", "x" * 300])
def test_a_name_that_no_node_can_have_is_refused(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        options.parse(["--static", "m", "--node", name], {})
    assert ended.value.code == 2
    assert re.search("--node: '.*' cannot be the name of a node", capsys.readouterr().err)


@pytest.fixture
def root_logger() -> Iterator[logging.Logger]:
    root = logging.getLogger()
    before = root.handlers[:], root.level
    yield root
    root.handlers[:] = before[0]
    root.setLevel(before[1])


@pytest.mark.usefixtures("root_logger")
def test_a_log_is_one_line_of_json_whatever_it_holds(capsys: pytest.CaptureFixture[str]) -> None:
    start_logs()
    log = logging.getLogger("a module")
    log.info("some event", extra=fields(cache="GKMCache a/b", why="line\nbreak é \ud800", nothing=None))
    try:
        int("x")
    except ValueError:
        log.exception("a defect")

    first, second = (json.loads(line) for line in capsys.readouterr().err.splitlines())
    assert (first["event"], first["level"], first["cache"]) == ("some event", "info", "GKMCache a/b")
    assert "nothing" not in first
    assert "ValueError" in second["traceback"]
