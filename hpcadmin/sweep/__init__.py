"""The nightly look at all nodes: what it sees, decides and does, and the ledger of it."""
