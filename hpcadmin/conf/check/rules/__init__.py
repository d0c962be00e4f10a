"""One file a subject; each has RULES, a tuple of functions from Situation to findings."""
