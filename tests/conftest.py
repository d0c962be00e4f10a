"""Its place makes the modules beside it importable from every test."""

from hypothesis import settings

# How long an example takes says what else the machine does.
settings.register_profile("hpcadmin", deadline=None)
settings.load_profile("hpcadmin")
