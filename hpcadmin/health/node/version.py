"""The release; the build checks that it is that of hpcadmin."""

VERSION = "0.1.0"
