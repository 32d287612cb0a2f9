"""The glossary names every column that a run writes, and no column that none does."""

from pmdkit import train
from pmdkit.llm.weight_sync_check import SYNC_COLUMNS
from pmdkit.observe.glossary import EVERY_TIER, GLOSSARY, LANGUAGE_MODELS
from pmdkit.observe.metrics import KEYS


def test_the_columns_of_every_tier_are_those_of_the_first_two(tmp_path):
    bandit = train("pmd-mean", "bandit", "needle", steps=1, group=4, out=tmp_path / "bandit")
    toy = train("pmd-mean", "toy", "modular-sum", steps=1, group=4, prompts=4, out=tmp_path / "toy")
    for run in (bandit, toy):
        assert set(run.metrics[0]) == set(EVERY_TIER)
    assert set(KEYS) == set(EVERY_TIER)


def test_a_language_model_adds_its_own():
    """tests/llm/test_run.py compares the columns of a run with these; the canary's come with an engine outside."""
    assert set(SYNC_COLUMNS) <= set(LANGUAGE_MODELS)
    assert not set(EVERY_TIER) & set(LANGUAGE_MODELS)


def test_every_meaning_is_a_sentence():
    for name, meaning in GLOSSARY.items():
        assert meaning.text[0].isupper(), name
        assert meaning.text.endswith("."), name
        assert not meaning.look or meaning.look.endswith("."), name
