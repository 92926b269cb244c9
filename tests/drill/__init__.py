"""The fault table: its cells on the backends, and the runner that judges them."""
