"""The tables that people see in a terminal, made of results. 80 columns are enough for each."""
