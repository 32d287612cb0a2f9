"""The batch arithmetic that every framework has words for, checked once, before it is written in their words."""

from dataclasses import dataclass

from pmdkit.errors import UsageError
from pmdkit.llm.planner.predict import Prediction


@dataclass(frozen=True)
class Batch:
    """Whole numbers of a step on a cluster.

    Attributes:
        prompts, group: P and G.
        ministeps, passes: updates of a step are their product.
        processes: accelerators that train.
        rows: responses of one ministep on one accelerator.
        micro: responses in one forward pass, where a framework counts rows and not tokens.
    """

    prompts: int
    group: int
    ministeps: int
    passes: int
    processes: int
    rows: int
    micro: int

    @property
    def responses(self) -> int:
        """Of a step."""
        return self.prompts * self.group

    @property
    def accumulate(self) -> int:
        """Forward passes of one ministep on one accelerator."""
        return self.rows // self.micro


def batch_of(prediction: Prediction, framework: str) -> Batch:
    """The arithmetic in whole numbers.

    Raises:
        UsageError: prompts do not divide into ministeps, or a ministep's responses into accelerators. pmdkit trains
            such recipes; the other frameworks do not.
    """
    work, count = prediction.work, prediction.trainers.count
    prompts = round(work.prompts)
    if prompts % work.ministeps:
        raise UsageError(
            f"{prompts} prompts are not divided by {work.ministeps} ministeps; {framework} needs whole ministeps: "
            "change --prompts or --ministeps"
        )
    together = prompts // work.ministeps * work.group
    if together % count:
        raise UsageError(
            f"a ministep has {together} responses, which {count} accelerators do not divide; {framework} needs as "
            "many on each: change --prompts, --group, --ministeps"
            + (", --serve or --gpus" if prediction.serve else " or --gpus")
        )
    rows = together // count
    most = max(1, work.token_budget // work.longest)  # rows are padded, so each may be as long as the longest
    micro = max(size for size in range(1, rows + 1) if rows % size == 0 and size <= most)
    return Batch(prompts, work.group, work.ministeps, work.passes, count, rows, micro)
