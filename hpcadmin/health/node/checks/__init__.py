"""The checks: one file each, named as its check."""
