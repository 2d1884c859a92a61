"""Warnings about clients do not fill the disk."""

import logging

import pytest
from gkm_operator.admission.https.throttled_log import SECONDS, ThrottledLog


def test_an_event_is_logged_once_per_interval_with_the_suppressed_count(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now = [0.0]
    log = ThrottledLog(logging.getLogger("a test"), lambda: now[0])
    for number in range(5):
        log.warning("too slow", peer=str(number))
    log.warning("no TLS", peer="x")
    now[0] = SECONDS - 0.1
    log.warning("too slow", peer="8")
    now[0] = SECONDS
    log.warning("too slow", peer="9")
    said = [(record.message, vars(record)["peer"], vars(record).get("suppressed")) for record in caplog.records]
    assert said == [("too slow", "0", None), ("no TLS", "x", None), ("too slow", "9", 5)]
