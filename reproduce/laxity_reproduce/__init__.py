"""The papers' experiments, run again: published values beside ours, with a verdict for each.

>>> from laxity_reproduce import papers
>>> found = papers.run("rt-xen", "table-4")
>>> found.reproduced, found.to_json()

The package uses Laxity and nothing in Laxity uses it. It adds the command `laxity reproduce` and
the report on what that wrote (`laxity.additions`).
"""
