"""Availability of nodes and of the cluster over a period, from Slurm's events and our own runs.

period, rules, timeline, account and incidents are pure; evidence and quarter read run folders; document says it in
sections, and forms writes these as text, a page or a file.
"""
