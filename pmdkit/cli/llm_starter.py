"""`pmdkit llm-starter DIR`: the starter model of tier 3, built and taught on its own."""

import json as to_json
import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from pmdkit.cli.options import Number, Whole


def llm_starter(
    out: Path,
    /,
    *,
    size: str = "starter",
    seed: Whole = 0,
    pass_rate: Number = 0.3,
    json: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Build a small language model and teach it sums told as stories, about half a minute on one core; no download.

    The folder loads with AutoModelForCausalLM and AutoTokenizer. `pmdkit llm starter` does all this by itself.

    Args:
        out: folder to write, new or empty.
        size: starter (a tiny Qwen2), starter-moe (a tiny Qwen3-MoE) or starter-100m (for a GPU).
        seed: of weights, lessons and measurement.
        pass_rate: share of held-out problems that it passes at least, up to 0.5; 0 for random weights.
        json: print one JSON value.
    """
    import torch

    from pmdkit.llm.room import check_room

    check_room()
    torch.set_num_threads(1)
    from pmdkit.llm.starter.folder import make

    told = make(out, size, seed, pass_rate, lambda text: print(text, file=sys.stderr, flush=True))
    if json:
        print(to_json.dumps(told))
        return
    print(
        f"{told['out']}: {told['weights']:,} weights, pass rate {told['pass_rate']:.3f} on {told['problems']} held-out "
        f"problems, {told['seconds']:.0f} s"
    )
