"""`python -m eigenmesh`: the command line."""

from eigenmesh.cli import main

main()
