"""`python -m stellwerk.cli`: the same as the command `stellwerk`."""

from stellwerk.cli import main

main()
