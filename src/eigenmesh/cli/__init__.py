"""The command line."""

from eigenmesh.cli.commands import main

__all__ = ["main"]
