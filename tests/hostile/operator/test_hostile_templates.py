"""Hostile templates at the webhook: each is refused with a printable reason, and others are served meanwhile."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import RemoteDisconnected

import pytest
from support.host.waiting import until
from support.operator.group_templates import (
    KINDS,
    GroupTemplates,
    Json,
    config_map,
    filled,
    group,
    pool,
    rendering,
    template,
)
from support.operator.webhook import Webhook, is_reviewed, serving
from support.operator.workloads import review_of
from support.templates.hostile import BOMBS, ESCAPES

CROWD = 24
HOSTILE = [*BOMBS.values(), *ESCAPES]


@pytest.fixture(scope="module")
def site() -> Iterator[GroupTemplates]:
    with rendering() as renderer:
        yield filled(renderer)


@pytest.fixture(scope="module")
def webhook(site: GroupTemplates, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Webhook]:
    with serving(tmp_path_factory.mktemp("webhook"), None, site.reviewers) as served:
        yield served


def answer(webhook: Webhook, path: str, value: Json) -> Json | None:
    """Return the response; None if the API server has to send the request again."""
    body = review_of(KINDS[path], value, userInfo={"username": "author"})
    status, text = webhook.ask("POST", path, body)
    assert status in {200, 503}
    return dict(json.loads(text)["response"]) if status == 200 else None


def decision(webhook: Webhook, value: Json) -> Json | None:
    """Return the response to a template; None if GKM cannot decide now."""
    response = answer(webhook, "/grouptemplates", value)
    is_late = response is not None and "cannot decide" in response.get("status", {}).get("message", "")
    return None if is_late else response


def answer_in_a_crowd(webhook: Webhook, value: Json) -> Json | None:
    """Return the response to a template; None also if the server closed a slow connection while others waited."""
    try:
        return answer(webhook, "/grouptemplates", value)
    except RemoteDisconnected:
        return None


def refusal(webhook: Webhook, path: str, value: Json) -> str:
    response = answer(webhook, path, value)
    assert response is not None
    assert not response["allowed"]
    message: str = response["status"]["message"]
    assert message.isprintable()
    return message


@pytest.mark.parametrize("text", HOSTILE, ids=[*BOMBS, *ESCAPES])
def test_a_hostile_template_is_refused_and_the_next_one_reviewed(webhook: Webhook, text: str) -> None:
    assert refusal(webhook, "/grouptemplates", template("bad", config_map(data={"a": text})))
    assert refusal(webhook, "/grouptemplates", template("bad", validation=[{"expression": text[:4096]}]))
    # A machine that stands still for two seconds lets no rendering process answer in time: then its user tries again.
    good = until(lambda: decision(webhook, template("good")), "a decision about a good template")
    assert good["allowed"], good


@pytest.mark.parametrize("text", BOMBS.values(), ids=list(BOMBS))
def test_a_hostile_template_that_no_webhook_has_reviewed_gives_no_group(
    site: GroupTemplates, webhook: Webhook, text: str
) -> None:
    name = f"slipped-{HOSTILE.index(text)}"
    site.put(template(name, config_map(data={"a": text})), pool(name, name))
    assert refusal(webhook, "/pools", pool(name, name))
    response = answer(webhook, "/taskgroups", group("train", of=name))
    assert response is not None
    # When rendering takes too long without a fault of the template, the controllers decide.
    assert not response["allowed"] or "GKM cannot decide" in response["warnings"][0]


def test_a_crowd_of_hostile_templates_takes_nothing_from_other_requests(webhook: Webhook) -> None:
    values = [
        template(f"bad-{number}", config_map(data={"a": HOSTILE[number % len(HOSTILE)]})) for number in range(CROWD)
    ]
    with ThreadPoolExecutor(CROWD) as clients:
        sent = [clients.submit(answer_in_a_crowd, webhook, value) for value in values]
        while not all(each.done() for each in sent):
            assert is_reviewed(webhook)
        responses = [each.result() for each in sent]
    assert not any(response["allowed"] for response in responses if response is not None)
    assert any(response is not None for response in responses)
