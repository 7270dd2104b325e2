"""An NVFlare job from within: its sides at the sites and at the server, their kits, and orders.

These modules know sites' folders and estimators, which no engine may: so they are not in `engines`.
"""
