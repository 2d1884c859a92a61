from gkm.api.crds import KINDS

PAST = ".metadata.creationTimestamp"


def test_only_a_past_time_is_shown_as_an_age() -> None:
    shown_as_age = {column["jsonPath"] for kind in KINDS for column in kind.columns if column["type"] == "date"}
    assert shown_as_age == {PAST}
