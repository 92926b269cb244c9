"""What the test suites share: process worlds, sample values with their references, program runs."""
