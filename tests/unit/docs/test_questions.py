"""What strangers ask first is answered at most two clicks away from the first page of the site."""

from pathlib import Path

import pytest
from markdown_links import anchors, links

DOCS = Path(__file__).parents[3] / "docs"
FIRST = DOCS / "README.md"
CLICKS = 2
QUESTIONS = {
    "What is it, and what do I gain?": "README.md",
    "Does it run on my Kubernetes, kernel and container runtime?": "reference/supported.md#cluster",
    "Does it support my GPU?": "reference/supported.md#gpus",
    "How do I install it on EKS, GKE, AKS, k3s or kind?": "how-to/platforms.md",
    "How do I install it, and see a cache ready?": "quickstart.md#quickstart",
    "How do I give vLLM its kernels?": "how-to/vllm.md",
    "How do I build, check and sign a cache in CI?": "how-to/ci.md#github-actions",
    "Which volume attributes do I need?": "features/volumes.md#which-volume-to-choose",
    "Why does my pod wait?": "features/volumes.md#when-it-fails",
    "Why does my program compile although it has a cache?": "reference/why.md",
    "How much disk, memory and registry does it take?": "reference/sizing.md#disk-of-a-node",
    "Who can put code into my pods?": "reference/security.md#threats",
    "What happens while GKM or the registry is down?": "about/faq.md",
    "Why not an image volume or a PVC?": "about/comparison.md",
    "What does an alert want me to do?": "runbooks/caches.md#gkmcachefailed",
    "How do new nodes of an autoscaler get caches?": "how-to/autoscalers.md#how-a-new-node-gets-its-caches",
    "How do I plan a run of 1,024 GPUs?": "features/placement.md#a-run",
    "How do I upgrade, and how do I get rid of it?": "how-to/uninstall.md",
}
FEATURES = sorted((DOCS / "features").glob("*.md"))
HEADS = ["What it does", "Use it", "When it fails", "Limits"]


def clicks() -> dict[Path, int]:
    """Return the pages that links reach from the first page, with the least number of clicks."""
    found, last = {FIRST: 0}, [FIRST]
    for number in range(1, CLICKS + 1):
        reached = {
            (page.parent / link.path).resolve()
            for page in last
            for link in links(page.read_text(encoding="utf-8"))
            if link.path.endswith(".md") and not link.is_external
        }
        last = [page for page in reached if page not in found]
        found |= dict.fromkeys(last, number)
    return found


REACHED = clicks()


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_question_is_answered_within_two_clicks(question: str) -> None:
    path, _, anchor = QUESTIONS[question].partition("#")
    assert REACHED[DOCS / path] <= CLICKS
    assert not anchor or anchor in anchors((DOCS / path).read_text(encoding="utf-8"))


def test_a_page_that_nothing_links_is_not_reached() -> None:
    assert DOCS / "no-such-page.md" not in REACHED


@pytest.mark.parametrize("page", FEATURES, ids=lambda page: page.stem)
def test_each_page_of_a_feature_has_the_same_four_parts(page: Path) -> None:
    lines = page.read_text(encoding="utf-8").splitlines()
    assert [line.removeprefix("## ") for line in lines if line.startswith("## ")] == HEADS


def test_the_design_is_for_developers_and_short() -> None:
    """Parts for users and operators belong into docs/features and docs/reference."""
    texts = [page.read_text(encoding="utf-8") for page in (DOCS / "design").glob("*.md")]
    assert len(texts) > 10
    assert sum(len(text.split()) for text in texts) <= 20_000
