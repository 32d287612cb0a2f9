"""`python -m strict_answers` is the command `strict-answers`."""

from strict_answers.reward_audit import main

main()
