"""The package works where nothing else of the repository is installed, and the programs of its README run."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
README = (Path(__file__).parents[1] / "README.md").read_text("utf-8")
PROGRAMS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
ALONE = """
import sys
class Refused:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("pmdkit", "pmdkit_lab", "pmdkit_course", "torch", "numpy", "rich"):
            raise ImportError(name + " must not be needed")
sys.meta_path.insert(0, Refused())
"""


def run(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_it_works_alone():
    code = ALONE + (
        "from strict_answers import Grader, Item, verify\n"
        "print([verify(text, '34').correct for text in ('Answer: 34', 'Answer: 2^5+2', 'Answer: 35')])\n"
        "with Grader() as grader: print(grader.grade([Item('Answer: 2^5+2', '34')])[0].path)\n"
    )
    assert run(code) == "[True, True, False]\nsymbolic\n"


def test_the_reward_of_the_readme_is_one_of_trl():
    """TRL calls reward(prompts=..., completions=..., **columns), and takes None for no reward."""
    (reward,) = (code for code in PROGRAMS if "def reward" in code)
    assert len(reward.splitlines()) <= 10
    call = """
chats = [[{"role": "assistant", "content": text}] for text in ("Answer: 34", "Answer: 2^5+3", "34", "Answer: 68/2")]
print(reward(prompts=[None] * 4, completions=chats, completion_ids=[[1]] * 4, answer=["34"] * 4, trainer_state=None))
"""
    assert run(ALONE + reward + call) == "[1.0, 0.0, 0.0, 1.0]\n"


def test_the_other_programs_of_the_readme_run():
    for code in PROGRAMS:
        run(ALONE + code)
