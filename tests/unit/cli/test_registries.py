"""Registries on the command line: defaults for local ones, and hints that name flags and commands."""

import json
from pathlib import Path

import pytest
from gkm.api.errors import Remedy
from gkm_cli import main
from support.cli.command import CACHE, gkm
from support.registry.auth import Auth
from support.registry.server import Registry


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_registry_of_this_machine_needs_no_flag(registry_server: Registry, host: str) -> None:
    ref = f"{host}:{registry_server.host.rpartition(':')[2]}/team/x:1"
    done = gkm("cache", "build", CACHE, "--image", ref, "--push")
    assert (done.returncode, done.stderr) == (0, "")
    assert gkm("cache", "inspect", ref).returncode == 0


def test_a_local_registry_with_tls_is_used_over_tls(tmp_path: Path) -> None:
    with Registry.start(tls=tmp_path) as registry:
        ref = f"{registry.host}/team/x:1"
        refused = gkm("cache", "inspect", ref)
        known = gkm("cache", "inspect", ref, "--ca-file", registry.ca_file)
    assert (refused.returncode, known.returncode) == (1, 1)
    assert "--ca-file FILE" in refused.stderr
    assert "--plain-http" in refused.stderr
    assert "registries.hosts" not in refused.stderr
    assert "does not exist in its registry" in known.stderr


def test_the_configuration_of_a_registry_has_precedence(registry_server: Registry, tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(json.dumps({"registries": {"hosts": {registry_server.host: {}}}}))
    done = gkm("cache", "inspect", f"{registry_server.host}/team/x:1", "--config", config)
    assert (done.returncode, "does not speak TLS" in done.stderr) == (1, True)


@pytest.mark.parametrize("bearer", [True, False])
def test_a_user_without_access_gets_a_hint_to_log_in(bearer: bool) -> None:  # noqa: FBT001
    with Registry.start(auth=Auth("u", "p", bearer=bearer)) as registry:
        ref = f"{registry.host}/team/x:1"
        for command in (["inspect", ref], ["build", CACHE, "--image", ref, "--push"]):
            done = gkm("cache", *command)
            assert done.returncode == 1
            assert f"gkm login {registry.host}" in done.stderr
            assert "configured" not in done.stderr


def test_an_image_beyond_the_allow_list_is_refused_with_the_file_that_has_it(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("registries: {allow: [other.example]}")
    done = gkm("cache", "inspect", "registry.example/x", "--config", config)
    assert (done.returncode, "administrator" in done.stderr, "--config" in done.stderr) == (1, False, True)


def test_this_program_has_a_hint_of_its_own_for_every_remedy() -> None:
    assert set(main.HINTS) == set(Remedy)
