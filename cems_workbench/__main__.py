"""`python -m cems_workbench`."""

from cems_workbench.cli import main

if __name__ == "__main__":
    main()
