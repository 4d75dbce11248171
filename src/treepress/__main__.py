"""`python -m treepress`."""

from treepress._command import main

# Nothing may follow: a program that is run takes this module's place.
if __name__ == "__main__":
    main()
