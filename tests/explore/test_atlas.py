"""The atlas: its numbers are those of explain, every cell leads to a certificate, the sliders read the same."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from generate.atlas import BEGIN, END, LOSSES, NUMBERS, PAGE, ask, different, table
from generate.explorables.atlas import FAMILIES, draw

from pmdkit.objectives import OBJECTIVES
from pmdkit_lab.explain import sampled_first_step
from tests.nightly import mostly_nightly

from .in_node import in_node

ROOT = Path(__file__).parents[2]

WRITTEN = json.loads((ROOT / NUMBERS).read_text(encoding="utf-8"))


@pytest.mark.slow
@pytest.mark.parametrize("name", mostly_nightly(LOSSES, "rloo", "grpo", "rloo-k3"))
def test_the_numbers_are_those_of_explain(name):
    """What `--check` compares, which sees a change."""
    written = WRITTEN["losses"][name]
    assert different(written, json.loads(json.dumps(ask(name)))) == []
    assert different(written | {"headline": "something else"}, written)


def test_every_loss_has_one_family_and_a_line_of_its_own_on_the_map():
    names = [name for _, family in FAMILIES.values() for name in family]
    assert sorted(names) == sorted(WRITTEN["losses"])
    facts = draw().tables["facts"]
    assert len({(each["colour"], *each["dash"]) for each in facts.values()}) == len(names)
    assert all(each["equation"] and each["says"] for each in facts.values())


def test_every_registered_loss_is_there():
    missing = LOSSES.keys() ^ WRITTEN["losses"].keys()
    assert not missing, f"run python docs/generate/atlas.py: {missing}"
    assert OBJECTIVES.keys() - LOSSES.keys() == {"bapo", "flowrl"}


def test_the_page_has_the_table_and_every_cell_a_certificate():
    page = (ROOT / PAGE).read_text(encoding="utf-8")
    assert page.split(BEGIN)[1].split(END)[0].strip() == table(WRITTEN["losses"]).strip()
    links, places = set(re.findall(r"\(#([\w-]+)\)", page)), set(re.findall(r'<a id="([\w-]+)">', page))
    assert links == places
    assert len(places) == len(WRITTEN["losses"])


def test_the_sliders_read_the_same_numbers(node):
    rates, taus = np.array(WRITTEN["rates"]), np.array(WRITTEN["taus"])
    asked = [(name, tau, p) for name in WRITTEN["losses"] for tau in (*taus, 0.2) for p in (*rates, 0.3)]
    code = "const { etaAt } = await load('atlas.js'); return given.asked.map((each) => etaAt(given.tables, ...each));"
    told = in_node(node, code, {"tables": WRITTEN, "asked": [(n, float(t), float(p)) for n, t, p in asked]})
    for (name, tau, p), eta in zip(asked, told, strict=True):
        loss = WRITTEN["losses"][name]
        rows = [loss["eta_by_tau"][f"{each:g}"] for each in taus] if loss["eta_by_tau"] else [loss["eta"]] * len(taus)
        known = np.array(rows, float)  # None is NaN
        along = [np.interp(np.log(p / (1 - p)), np.log(rates / (1 - rates)), row) for row in known]
        wanted = np.interp(np.log(tau), np.log(taus), along)
        assert (eta is None) == np.isnan(wanted)
        if eta is not None:
            assert eta == pytest.approx(wanted, abs=1e-9)


@pytest.mark.parametrize("draws", [2, 16])
def test_the_first_step_from_draws_is_unbiased_where_a_loss_says_so(draws):
    """RLOO is unbiased; a mean that holds the own draw takes (G - 1)/G; both by enumeration, here by hand for two."""
    assert sampled_first_step(OBJECTIVES["rloo"](), 0.1, draws)[0] == pytest.approx(1, abs=1e-12)
    assert sampled_first_step(OBJECTIVES["dr-grpo"](), 0.1, draws)[0] == pytest.approx(1 - 1 / draws, abs=1e-12)
    if draws == 2:  # one right, one wrong: the advantages are 1 and -1, each of weight 1/2
        chance, step = 2 * 0.1 * 0.9, 1 / (2 * 0.1 * 0.9)
        mean, deviation = sampled_first_step(OBJECTIVES["rloo"](), 0.1, draws)
        assert mean == pytest.approx(chance * step * 1.0)
        assert deviation == pytest.approx(step * np.sqrt(chance * (1 - chance)))
