"""gres.conf."""

from __future__ import annotations

from hpcadmin.conf.keytable.kinds import Apply, Form, Key, table

# Name, NodeName and AutoDetect begin a line; the rest stands behind Name or NodeName.
KEYS = table(
    "gres.conf",
    {Form.TEXT: "AutoDetect Cores Count File Flags Links MultipleFiles Name NodeName Type"},
    Key("CPUs", alias="Cores"),
    Key("Files", alias="File"),
    Key("Link", alias="Links"),
    before={Apply.RESTART_ALL: "Cores CPUs Name Type"},
)
