"""The pages that go with a kit: what lies where, and nbgrader's settings."""

README = """\
# The instructor's kit

| folder or file | what it is |
|---|---|
| `release/LESSON/LESSON.ipynb` | to be handed out: the exercises are to be filled in |
| `source/LESSON/LESSON.ipynb` | the same with solutions; **not for students** |
| `answers.md` | every exercise with solution, hints and the mistakes that are recognised; **not for students** |
| `print/LESSON.html` | to be printed or read without Jupyter |
| `timing.md`, `timing.csv` | how long each lesson takes |
| `nbgrader_config.py` | settings, if you use nbgrader |

Only the parts that were asked for are here. The solutions ship with pmdkit too (`pmdkit learn solution 103.2`):
they are hidden from view and not from search. Grades that matter need a conversation.

## Grade without nbgrader

Collect the notebooks as `submitted/STUDENT/LESSON.ipynb`, then

    pmdkit learn grade submitted --csv > grades.csv

Each answer runs in a process with limits, without the rest of its lesson: seconds per notebook. `--seed 7` uses other
inputs than the students saw.

## Grade with nbgrader

This folder is a course folder of nbgrader. Its Jupyter kernel needs `pmdkit[course]`, and `pmdkit[course,llm]` for some
lessons of part 2 and 3.

    nbgrader generate_assignment 103_hidden_regulariser
    nbgrader autograde 103_hidden_regulariser

`generate_assignment` writes `release/` anew from `source/` (give it `--force` if `release/` is there). `autograde` runs
whole lessons, a minute for the longest. The points of an exercise are its difficulty, 1 to 5.

Text: CC-BY-4.0. Code: Apache-2.0. The pmdkit authors.
"""

NBGRADER = '''\
"""Settings of nbgrader for this course: what a student finds in place of a solution."""

c = get_config()  # noqa: F821
c.CourseDirectory.course_id = "pmdkit"
c.ClearSolutions.code_stub = {"python": "return ..."}
c.ExecutePreprocessor.timeout = 600
'''
