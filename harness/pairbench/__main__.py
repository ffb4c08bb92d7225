"""`python -m pairbench`."""

from pairbench.cli import main

if __name__ == "__main__":
    main()
