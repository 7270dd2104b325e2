"""The papers' tables and figures, run again: our default beside them, a verdict a claim."""
