"""`python -m torchcomms` is the `torchcomms` command."""

from torchcomms.cli import main

if __name__ == "__main__":
    main()
