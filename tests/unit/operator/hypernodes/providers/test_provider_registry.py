"""A name leads to a built-in provider, or to an entry point of an installed package or of one in providerPath."""

import sys
from pathlib import Path

import pytest
from gkm.api.topology_settings import TopologyProvider
from gkm.topology.providers import ProviderFailed
from gkm_operator.hypernodes.providers import registry
from support.topology.hosted_providers import hosted, misbehaves
from support.topology.provider_package import install

SOURCE = "def acme(config, credentials):\n    return 'made'\n"


@pytest.fixture(autouse=True)
def _own_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])


@pytest.mark.parametrize("name", ["infiniband", "lldp", "ufm", "tree-file"])
def test_a_built_in_provider_needs_no_path_and_is_not_replaced(tmp_path: Path, name: str) -> None:
    install(tmp_path, "def ufm(*_): ...\ndef tree_file(*_): ...\n", name, package="takeover")
    made = registry.factory(name, str(tmp_path))
    assert made is registry.factory(name)
    assert made.__module__.startswith("gkm_operator.hypernodes.providers.")


def test_a_package_in_the_path_is_found(tmp_path: Path) -> None:
    install(tmp_path, SOURCE, "acme", package="acme_found")
    assert registry.factory("acme", str(tmp_path))({}, {}) == "made"  # type: ignore[comparison-overlap]


def test_a_package_may_consist_of_links_as_a_mounted_configmap_does(tmp_path: Path) -> None:
    install(tmp_path / "..data", SOURCE, "acme", package="acme_linked")
    for each in (tmp_path / "..data").iterdir():
        (tmp_path / each.name).symlink_to(Path("..data") / each.name)
    assert registry.factory("acme", str(tmp_path))({}, {}) == "made"  # type: ignore[comparison-overlap]


def test_a_package_in_the_path_replaces_nothing_of_ours(tmp_path: Path) -> None:
    (tmp_path / "packages").mkdir()
    (tmp_path / "packages" / "urllib3.py").write_text("raise ValueError('a takeover')")
    ufm = TopologyProvider("ufm", {"url": "https://ufm"})
    with hosted(tmp_path, ufm, path=tmp_path / "packages") as running:
        assert running.failed("ufm").startswith("needs a credentialsSecret")


def test_a_name_that_a_module_lacks_is_a_fault(tmp_path: Path) -> None:
    install(tmp_path, SOURCE, "acme", package="acme_lacks", attribute="nothing")
    with pytest.raises(ProviderFailed, match="cannot be imported from acme_lacks:nothing: AttributeError"):
        registry.factory("acme", str(tmp_path))


def test_an_unknown_name_shows_those_that_there_are(tmp_path: Path) -> None:
    install(tmp_path, SOURCE, "other", package="acme_other")
    with pytest.raises(
        ProviderFailed,
        match=f"not installed in the image or {tmp_path}; there are infiniband, lldp, other, tree-",
    ):
        registry.factory("acme", str(tmp_path))


def test_without_a_path_the_message_names_the_setting() -> None:
    with pytest.raises(ProviderFailed, match=r"topology\.providerPath names no directory"):
        registry.factory("acme")


def test_two_packages_with_one_name_are_refused(tmp_path: Path) -> None:
    for package in ("acme_one", "acme_two"):
        install(tmp_path, SOURCE, "acme", package=package)
    with pytest.raises(ProviderFailed, match="several packages: acme_one:acme, acme_two:acme"):
        registry.factory("acme", str(tmp_path))


def test_a_module_that_cannot_be_imported_is_named(tmp_path: Path) -> None:
    install(tmp_path, "import no_such_module_of_any_kind\n", "acme", package="acme_broken")
    with pytest.raises(ProviderFailed, match="cannot be imported from acme_broken:acme: ModuleNotFoundError"):
        registry.factory("acme", str(tmp_path))


def test_a_directory_that_does_not_exist_shows_as_the_state(tmp_path: Path) -> None:
    with hosted(tmp_path, misbehaves("acme", tmp_path), path=tmp_path / "none") as running:
        assert running.failed("acme").startswith(f"is not installed in the image or {tmp_path}/none")
