"""Health of the node it runs on: standard library of Python 3.6 alone, and nothing from outside this package."""
