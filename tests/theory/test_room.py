"""The room as a whole: what it exports, and what it does not load."""

import subprocess
import sys
from pathlib import Path

from pmdkit import theory


def test_every_public_name_exists_has_a_docstring_and_hides_no_file():
    files = {path.stem for path in Path(theory.__file__).parent.glob("*.py")}
    for name in theory.__all__:
        assert getattr(theory, name).__doc__, name
        assert name not in files


def test_a_solve_loads_neither_torch_nor_scipy_and_an_error_not_its_statistics():
    code = (
        "import sys; from pmdkit import theory; theory.pmd_mean([.1, .9], [1., 0.], .05); "
        "theory.pmd_part([.1, .9], [1., 0.], .05); theory.binary(.1, .05); "
        "print({'torch', 'scipy', 'matplotlib'} & {name.split('.')[0] for name in sys.modules}); "
        "theory.target_error(.1, 16, .05, 'pmd-part', .1); print('scipy.stats' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["set()", "False"]
