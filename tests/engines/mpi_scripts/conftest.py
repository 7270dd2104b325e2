"""These files are for the ranks of an MPI job; elsewhere pytest leaves them alone."""

import os

collect_ignore_glob = [] if "OMPI_COMM_WORLD_RANK" in os.environ else ["*.py"]
