"""How much of a data sheet is reached: every constant of the planner that is not arithmetic, with source and range.

None is chosen so that a prediction comes out right, except TRAINING, which is taken from the paper's update times. What
the planner then predicts of the paper is generation; how far off it is: docs/use/plan.md.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Efficiency:
    """Shares of the data sheet that are reached, and what is lost in every decode step.

    Attributes:
        bandwidth: of memory bandwidth in a decode step. 0.77: vLLM 0.23 with an 8B model in bfloat16 at one request on
            an A100 decodes at 77 % of the roofline (johnmusgrave.com, "vLLM throughput-latency sweep"). A plain copy
            reaches 0.9 on an H200. Range 0.65 to 0.9.
        products: of dense FLOP/s in the matrix products of prefill and of large decode batches. Large products reach
            0.8 on an H200 (788 of 989 TFLOP/s); those of decoding have few rows. An assumption; 0.45 to 0.8.
        training: of dense FLOP/s over a whole update, recomputed activations counted as work. 0.30: the paper's 0.0057
            and 0.0064 ms/token on 32 GPUs, if those are H100s, are 0.29 to 0.33. As model FLOPs that is 22 %;
            torchtitan reports 33 to 39 % for 8B, prime-rl 11 to 36 %, verl 19 to 40 %. Range 0.2 to 0.5.
        step_seconds: a decode step is never shorter: scheduling, launches, sampling. An assumption; 1 to 3 ms.
        reduce_seconds: latency of one sum over a tensor-parallel engine, two for each layer. An assumption; 5 to 20 us.
        memory: of an accelerator's memory that a plan may fill; the rest is for libraries and holes.
    """

    bandwidth: float = 0.77
    products: float = 0.6
    training: float = 0.30
    step_seconds: float = 2e-3
    reduce_seconds: float = 10e-6
    memory: float = 0.9


PRACTICE = Efficiency()
