"""Warnings about clients do not fill the disk."""

import logging

import pytest
from gkm_operator.admission.https import throttled_log as seldom
from gkm_operator.admission.https.throttled_log import ThrottledLog


def test_an_event_is_said_once_in_a_while_and_then_how_often_it_was_not(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = ThrottledLog(logging.getLogger("a test"))
    for number in range(5):
        log.warning("too slow", peer=str(number))
    log.warning("no TLS", peer="x")
    monkeypatch.setattr(seldom, "SECONDS", 0.0)
    log.warning("too slow", peer="9")
    said = [(record.message, vars(record)["peer"], vars(record).get("unsaid")) for record in caplog.records]
    assert said == [("too slow", "0", None), ("no TLS", "x", None), ("too slow", "9", 4)]
