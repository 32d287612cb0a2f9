"""`python -m pmdkit` is `pmdkit`."""

from pmdkit.cli import main

main()
