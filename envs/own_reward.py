"""A grader of your own: copy this file, change the function, and name it as reward = "my.py:grade".

Here: full credit for the right integer, half for one that is off by one. The function runs in worker processes, under a
limit of time and memory; it must depend on its two arguments alone.
"""

import re


def grade(response: str, gold: str) -> float:
    """A number from 0 to 1, or a bool. An exception leaves the response unscored, never wrong."""
    said = re.findall(r"Answer: *(-?[0-9]{1,18})\s*$", response)
    if not said:
        return 0.0
    return {0: 1.0, 1: 0.5}.get(abs(int(said[-1]) - int(gold)), 0.0)


if __name__ == "__main__":
    from pmdkit.envs.math_answers import FunctionGrader, Item

    with FunctionGrader(f"{__file__}:grade") as grader:
        for response in ("Answer: 34", "Answer: 35", "I do not know"):
            print(f"{response!r}: {grader.grade([Item(response, '34')])[0].value}")
    print('train with it: set reward to this file and grade, such as "envs/own_reward.py:grade"')
