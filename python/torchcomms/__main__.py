"""`python -m torchcomms` is the `torchcomms` command."""

from torchcomms_cli import main

if __name__ == "__main__":
    main()
