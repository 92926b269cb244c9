"""What `./dev` does: set-up, build, demo, tests, checks.

The program must start on a machine that has nothing but python3 (3.8, to say that 3.10 is needed),
so nothing here imports a package.
"""
