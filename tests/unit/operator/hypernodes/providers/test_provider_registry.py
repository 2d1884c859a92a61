"""A name leads to a built-in provider, and `module:Class` to one of the image or of a mounted directory."""

import sys
from pathlib import Path

import pytest
from gkm.topology.providers import ProviderFailed
from gkm_operator.hypernodes.providers import command

SOURCE = "def acme(config, credentials):\n    return 'made'\n"


@pytest.fixture(autouse=True)
def _own_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])


@pytest.mark.parametrize("name", [*command.BUILT_IN])
def test_a_built_in_provider_needs_no_path(name: str) -> None:
    assert command.factory(name).__module__.startswith("gkm_operator.hypernodes.providers.")


def test_a_module_in_the_path_is_found(tmp_path: Path) -> None:
    (tmp_path / "acme_found.py").write_text(SOURCE)
    assert command.factory("acme_found:acme", str(tmp_path))({}, {}) == "made"  # type: ignore[comparison-overlap]


def test_a_module_may_be_a_link_as_in_a_mounted_configmap(tmp_path: Path) -> None:
    (tmp_path / "..data").mkdir()
    (tmp_path / "..data" / "acme_linked.py").write_text(SOURCE)
    (tmp_path / "acme_linked.py").symlink_to(Path("..data") / "acme_linked.py")
    assert command.factory("acme_linked:acme", str(tmp_path))({}, {}) == "made"  # type: ignore[comparison-overlap]


def test_a_module_in_the_path_replaces_nothing_of_ours(tmp_path: Path) -> None:
    (tmp_path / "urllib3.py").write_text("raise ValueError('a takeover')")
    assert command.factory("ufm", str(tmp_path)).__module__ == "gkm_operator.hypernodes.providers.ufm"


@pytest.mark.parametrize(
    ("reference", "why"),
    [
        ("acme_lacks:nothing", "cannot be imported as acme_lacks:nothing from the image or {}: AttributeError"),
        ("acme_broken:acme", "cannot be imported as acme_broken:acme from the image or {}: ModuleNotFoundError"),
        ("no_such_module:acme", "cannot be imported as no_such_module:acme from the image or {}: ModuleNotFoundError"),
        ("acme", "has no class: --class must be module:Class, or one of infiniband, lldp, tree-file, ufm"),
        (":acme", "has no class: --class must be module:Class"),
    ],
)
def test_what_cannot_be_imported_is_named(tmp_path: Path, reference: str, why: str) -> None:
    (tmp_path / "acme_lacks.py").write_text(SOURCE)
    (tmp_path / "acme_broken.py").write_text("import no_such_module_of_any_kind\n")
    with pytest.raises(ProviderFailed) as caught:
        command.factory(reference, str(tmp_path))
    assert str(caught.value).startswith(why.format(tmp_path))


def test_without_a_path_the_message_names_the_flag() -> None:
    with pytest.raises(ProviderFailed, match="from the image; --path names no directory: ModuleNotFoundError"):
        command.factory("no_such_module:acme")
