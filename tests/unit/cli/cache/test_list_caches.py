"""What `gkm cache list` prints when there is nothing to print, and of a report about an earlier image."""

import pytest
from gkm.api.caches import GKMCache
from gkm_cli.cache.list_caches import _entry, _print
from msgspec import convert


@pytest.mark.parametrize(("namespace", "words"), [("team", "no caches in the namespace team"), ("", "in the cluster")])
def test_without_caches_it_says_where_it_looked(capsys: pytest.CaptureFixture[str], namespace: str, words: str) -> None:
    _print([], namespace, is_complete=True)
    assert words in capsys.readouterr().out


def test_caches_that_cannot_be_read_are_not_no_caches(capsys: pytest.CaptureFixture[str]) -> None:
    _print([], "team", is_complete=False)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("reported", "expected"), [("a:1", (False, "Unknown", "NotReported")), ("a:2", (True, "True", ""))]
)
def test_a_report_about_an_earlier_image_says_nothing_of_this_one(
    reported: str, expected: tuple[bool, str, str]
) -> None:
    condition = {"status": "True", "reason": "R", "message": "", "lastTransitionTime": "2026-11-30T00:00:00Z"}
    status = {
        "image": f"r.example/{reported}",
        "conditions": [{"type": kind, **condition} for kind in ("Verified", "Ready")],
    }
    made = {"kind": "GKMCache", "metadata": {"name": "a", "namespace": "team"}, "spec": {"image": "r.example/a:2"}}
    entry = _entry(convert(made | {"status": status}, GKMCache))
    found = (entry["ok"], entry["verified"], entry["reason"])
    assert found == expected, "spec.image has changed, and no controller has looked at it"
