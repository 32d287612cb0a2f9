"""Make `python -m pmdkit` run the `pmdkit` command."""

from pmdkit.cli import main

main()
