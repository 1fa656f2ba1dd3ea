"""What is known to go wrong with a host, and what it costs.

`rules.RULES` has every rule. A rule looks at a host and names what it suspects, with the change
that should help. `diagnosis.diagnose` runs the host with and without that change, and makes a
finding of it only if the run shows that the change helps.
"""
