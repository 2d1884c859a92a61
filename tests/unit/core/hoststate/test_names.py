import pytest
from gkm.hoststate import names
from gkm.hoststate.layout import Layout, ref_of_scope
from gkm.hoststate.names import CLUSTER_SCOPE, CacheRef, InvalidName
from hypothesis import given
from hypothesis import strategies as st

HOSTILE = ["", ".", "..", "../x", "a/b", "a\x00", "a\n", "A", "-a", "a-", "a" * 300, "ａ", "_cluster-scoped", "a b"]


@pytest.mark.parametrize("value", HOSTILE)
def test_an_invalid_namespace_is_refused(value: str) -> None:
    with pytest.raises(InvalidName):
        names.namespace(value)


@pytest.mark.parametrize("value", [*HOSTILE, "a..b", "a" * 254])
def test_an_invalid_cache_name_is_refused(value: str) -> None:
    with pytest.raises(InvalidName):
        names.cache_name(value)


@pytest.mark.parametrize("value", ["", ".", "..", "../x", "a/b", "-a", ".hidden", "a" * 129, "a\n", "a\x00b"])
def test_an_invalid_volume_id_is_refused(value: str) -> None:
    with pytest.raises(InvalidName):
        names.volume_id(value)


@pytest.mark.parametrize(
    "value", ["", "sha256:", "sha256:" + "A" * 64, "sha512:" + "a" * 64, "sha256:" + "a" * 63 + "\n"]
)
def test_an_invalid_digest_is_refused(value: str) -> None:
    with pytest.raises(InvalidName):
        names.digest(value)


def test_a_reference_reads_as_people_name_it() -> None:
    assert str(CacheRef("ml-apps", "llama")) == "GKMCache ml-apps/llama"
    assert str(CacheRef(None, "llama")) == "ClusterGKMCache llama"


def test_the_cluster_scope_is_no_namespace() -> None:
    with pytest.raises(InvalidName):
        CacheRef(CLUSTER_SCOPE, "llama")
    assert ref_of_scope(CLUSTER_SCOPE, "llama") == CacheRef(None, "llama")


@given(st.text(max_size=300), st.text(max_size=300))
def test_no_name_leads_out_of_its_directory(namespace: str, name: str) -> None:
    layout = Layout()
    try:
        path = layout.pointer(CacheRef(namespace, name))
    except InvalidName:
        return
    assert path.parent.parent.parent == layout.caches
    assert ".." not in path.parts
