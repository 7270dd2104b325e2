"""The papers' tables and figures, a module a paper; each names its figures in FIGURES.

A further paper is one more module here.
"""
