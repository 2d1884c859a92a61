"""The cached reader of labels gives the same results as reading each node."""

import pytest
from gkm.api.topology_settings import Topology
from gkm.topology.labels import MalformedLabel, read, reader
from hypothesis import given
from hypothesis import strategies as st

KEYS = ["region", "fabric.domain", "gkm.io/fabric-domain", "block", "rack", "gpu.flavor", "of-no-interest"]
LABELS = st.dictionaries(st.sampled_from(KEYS), st.sampled_from(["", "a", "B", "a.b"]))


@given(st.lists(LABELS, max_size=20))
def test_the_cache_of_labels_changes_no_result(nodes: list[dict[str, str]]) -> None:
    remembered = reader(Topology())
    assert [remembered(labels) for labels in nodes] == [read(labels, Topology()) for labels in nodes]


def test_an_invalid_label_is_refused_each_time() -> None:
    remembered = reader(Topology())
    for _ in range(2):
        with pytest.raises(MalformedLabel, match="block"):
            remembered({"block": "-"})
