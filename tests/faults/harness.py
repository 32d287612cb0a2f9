"""What the fault tests share."""

GRADE = '''"""Grades by length, so that responses of a random model earn different rewards."""


def grade(response, gold):
    return len(response) % 5 / 4
'''


def scaled(number: int) -> int:
    """So many cases."""
    return number
