"""Backend 3: transformers causal language models, trained on problems with checkable answers."""

import warnings
from typing import TYPE_CHECKING

from pmdkit.observe.telemetry import no_telemetry

if TYPE_CHECKING:
    from pmdkit.fit import Backend
    from pmdkit.objectives import Objective
    from pmdkit.specs import LLMSpec

no_telemetry()  # before anything here imports transformers


def make_backend(spec: "LLMSpec", objective: "Objective") -> "Backend":
    """Model, engine, learner, task and measurements of a run on a language model."""
    from pmdkit.llm.recipe_checks import check_requirements

    check_requirements()
    with warnings.catch_warnings():  # of tqdm in notebooks without ipywidgets; no bar of its is drawn here
        warnings.filterwarnings("ignore", message="IProgress not found")
        from pmdkit.llm.backend import make_backend

    return make_backend(spec, objective)


def resolve_config(spec: "LLMSpec", objective: "Objective") -> "LLMSpec":
    """The spec with its defaults written out and impossible combinations refused."""
    from pmdkit.llm.recipe_checks import resolve_config

    return resolve_config(spec, objective)
