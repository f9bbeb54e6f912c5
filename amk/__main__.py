"""`python -m amk` is `amk`."""

from amk.cli.main import main

if __name__ == "__main__":
    main()
