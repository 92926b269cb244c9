"""The numbers behind docs/reports, and the programs that make them again."""
