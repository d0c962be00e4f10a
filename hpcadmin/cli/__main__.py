"""python -m hpcadmin.cli"""

from hpcadmin.cli import main

main()
