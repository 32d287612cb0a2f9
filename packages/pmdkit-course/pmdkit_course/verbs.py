"""The verb that this package adds to `pmdkit`. Light: `pmdkit --help` imports it."""

VERBS = {
    "learn": (
        "The exercises of the course, checked offline; grading, and the instructor's kit.",
        "pmdkit_course.cli:learn",
    )
}
