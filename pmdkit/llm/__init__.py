"""Backend 3: transformers causal language models, trained on problems with checkable answers."""

import warnings
from typing import TYPE_CHECKING

from pmdkit.observe.telemetry import no_telemetry

if TYPE_CHECKING:
    from pmdkit.objectives import Objective
    from pmdkit.session import Setup
    from pmdkit.spec import Spec

no_telemetry()  # before anything here imports transformers


def setup(spec: "Spec", objective: "Objective") -> "Setup":
    """Model, engine, learner, task and measurements of a run on a language model."""
    from pmdkit.llm.room import check_engine, check_room

    check_room()
    if spec.rollout is not None:
        check_engine(spec.rollout.engine, elsewhere=spec.vllm is not None and bool(spec.vllm.urls))
    with warnings.catch_warnings():  # of tqdm in notebooks without ipywidgets; no bar of its is drawn here
        warnings.filterwarnings("ignore", message="IProgress not found")
        from pmdkit.llm.build import build

    return build(spec, objective)


def resolve(spec: "Spec", objective: "Objective") -> "Spec":
    """The spec with its defaults written out and impossible combinations refused."""
    from pmdkit.llm.settle import settle

    return settle(spec, objective)
