"""Each loss of the record, cut from its project's source: the text is the recorded one, and so is the objective.

sh tests/field/run.sh. "Moved: look again" is news about the project, not about a change of ours.
"""

import json

import pytest
import torch
from generate import kimi

from pmdkit.objectives import load_objective

from .adapters import ADAPTERS, RECORD, Given, cut

pytestmark = pytest.mark.nightly
LOSSES = {name: entry for entry in RECORD for name in entry["losses"]}
ROWS = {row.where: row for row in kimi.ROWS}
WRITTEN = json.loads(kimi.RECORD.read_text(encoding="utf-8"))
TAU = 0.1


@pytest.fixture
def source(request):
    """The code of an entry and its digest."""
    entry = LOSSES[request.param] if isinstance(request.param, str) else request.param
    found = cut(entry)
    if found is None:
        pytest.skip(f"{entry.get('package') or entry['checkout']} is not here; see tests/field/run.sh")
    return found


def objective(name):
    """The objective that a loss was found to be."""
    if name in ROWS:
        return ROWS[name].objective(TAU)
    options = dict(LOSSES[name]["losses"][name])
    method = options.pop("objective")
    return load_objective(method, **options, **({"tau": TAU} if method.startswith("pmd") else {}))


def ends(name):
    """Where the page says that a loss ends, read as four tokens."""
    return WRITTEN[name]["ends"]["0.1"]["4"]


def theirs(name, source):
    """The project's own code as a loss on given draws."""
    return lambda *draws: ADAPTERS[name](source[0], Given(*draws), TAU)


def slope(loss_on, drift, real):
    """[8, 6] the gradient on the stale batch; with real rewards instead of {0, 1}, if asked."""
    reward, old, new, mask = kimi.stale(drift)
    if real:
        reward = torch.tensor([[0.7, -0.4, 0.1, 1.3], [0.2, -0.9, 0.5, 0.05]], dtype=torch.float64)
    logp = new.requires_grad_()
    return torch.autograd.grad(loss_on(reward, old, mask)(logp), logp)[0] * mask


def test_each_loss_has_an_adapter_and_one_objective():
    assert ADAPTERS.keys() == LOSSES.keys()
    assert all((name in ROWS) != ("objective" in entry["losses"][name]) for name, entry in LOSSES.items())


@pytest.mark.parametrize("source", RECORD, indirect=True, ids=lambda entry: next(iter(entry["losses"])))
def test_the_source_is_the_one_that_was_read(source, request):
    assert source[1] == request.node.callspec.params["source"]["sha256"], "moved: look again"


@pytest.mark.parametrize("source", LOSSES, indirect=True)
def test_the_gradient_is_that_of_the_objective(source, request):
    """On-policy and stale, rewards {0, 1} and real: the same direction, and the recorded factor between the lengths."""
    name = request.node.callspec.params["source"]
    mine, times = kimi.ours(objective(name)), LOSSES[name]["losses"][name].get("times", 1.0)
    for drift in (0.0, 0.1, 0.35, 1.0):
        for real in (False, True):
            wanted = times * slope(mine, drift, real)
            found = slope(theirs(name, source), drift, real)
            # SkyRL takes ratios in float32
            assert (found - wanted).norm() < 1e-6 * wanted.norm(), f"drift {drift}; moved: look again"


@pytest.mark.parametrize(
    "source", [name for name in LOSSES if name in ROWS and ends(name)["steps"] < 1500], indirect=True
)
def test_the_code_ends_where_the_page_says(source, request):
    name = request.node.callspec.params["source"]
    assert kimi.end(theirs(name, source), 4)["passed"] == pytest.approx(ends(name)["passed"], abs=2e-4)
