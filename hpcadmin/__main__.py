"""python -m hpcadmin"""

from hpcadmin.cli import main

main()
